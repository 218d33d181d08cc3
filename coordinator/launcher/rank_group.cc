#include "coordinator/launcher/rank_group.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

namespace regatta {
namespace {

constexpr const char* kProcs = "/cgroup.procs";

bool WriteWord(const std::string& file, const char* word) {
  const int fd = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool written = write(fd, word, 1) == 1;
  close(fd);
  return written;
}

bool Exists(const std::string& file) { return access(file.c_str(), F_OK) == 0; }

// The number after `word` in a file of lines such as "oom_kill 1"; 0 where it is not there.
int64_t NumberIn(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  std::string name;
  int64_t number = 0;
  while (file >> name >> number) {
    if (name == word) return number;
  }
  return 0;
}

// A process can only be moved below a group whose list of processes it may write.
std::string MakeBelow(const std::string& parent, const std::string& name) {
  std::string folder = parent + "/" + name;
  const bool made =
      access((parent + kProcs).c_str(), W_OK) == 0 && mkdir(folder.c_str(), 0755) == 0;
  return made ? folder : "";
}

// Whether a comma-separated list has the word.
bool HasWord(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

}  // namespace

GroupParents FindGroupParents(const std::string& mounts, const std::string& groups) {
  std::string unified_path;
  std::string memory_path;
  std::istringstream group_lines(groups);
  for (std::string line; std::getline(group_lines, line);) {  // "4:memory:/user", "0::/user"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) unified_path = line.substr(second + 1);
    if (HasWord(controllers, "memory")) memory_path = line.substr(second + 1);
  }
  GroupParents parents;
  std::istringstream mount_lines(mounts);
  for (std::string line; std::getline(mount_lines, line);) {
    std::istringstream words(line);
    std::string device;
    std::string folder;
    std::string type;
    std::string options;
    words >> device >> folder >> type >> options;
    if (type == "cgroup2" && !unified_path.empty() && parents.unified.empty()) {
      const size_t slash = unified_path.rfind('/');
      if (unified_path == "/") {
        parents.unified = {folder};
      } else {
        parents.unified = {folder + unified_path, folder + unified_path.substr(0, slash)};
      }
    }
    if (type == "cgroup" && HasWord(options, "memory") && !memory_path.empty()) {
      parents.memory = memory_path == "/" ? folder : folder + memory_path;
    }
  }
  return parents;
}

RankGroup RankGroup::Make(const GroupParents& parents, const std::string& name) {
  std::vector<std::string> folders;
  for (const std::string& parent : parents.unified) {
    const std::string folder = MakeBelow(parent, name);
    if (folder.empty()) continue;
    if (Exists(folder + "/memory.events")) {
      if (!folders.empty()) rmdir(folders[0].c_str());
      return RankGroup({folder});
    }
    if (folders.empty()) {
      folders.push_back(folder);
    } else {
      rmdir(folder.c_str());
    }
  }
  if (!parents.memory.empty()) {
    if (const std::string folder = MakeBelow(parents.memory, name); !folder.empty())
      folders.push_back(folder);
  }
  return RankGroup(std::move(folders));
}

bool RankGroup::Enter() const {
  bool entered = true;
  for (const std::string& folder : folders_) entered &= WriteWord(folder + kProcs, "0");
  return entered;
}

int64_t RankGroup::OomKills() const {
  int64_t kills = 0;
  for (const std::string& folder : folders_) {
    kills += NumberIn(folder + "/memory.events", "oom_kill") +
             NumberIn(folder + "/memory.oom_control", "oom_kill");
  }
  return kills;
}

void RankGroup::Kill() const {
  for (const std::string& folder : folders_) WriteWord(folder + "/cgroup.kill", "1");
}

bool RankGroup::Remove() const {
  bool removed = true;
  for (const std::string& folder : folders_) {
    removed &= rmdir(folder.c_str()) == 0 || errno == ENOENT;
  }
  return removed;
}

}  // namespace regatta
