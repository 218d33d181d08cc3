#include "coordinator/launcher/child.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <string_view>

extern char** environ;

namespace regatta {
namespace {

constexpr size_t kLogTailBytes = 4096;

// For exec: a terminating null, and strings that live as long as `strings`.
std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> EnvironmentWith(const std::map<std::string, std::string>& added) {
  std::vector<std::string> all;
  for (const auto& [name, value] : added) all.push_back(absl::StrCat(name, "=", value));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!added.contains(std::string(text.substr(0, text.find('='))))) all.emplace_back(text);
  }
  return all;
}

}  // namespace

absl::StatusOr<pid_t> SpawnChild(const ChildProgram& program) {
  std::vector<std::string> words = program.words;
  std::vector<std::string> environment = EnvironmentWith(program.environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(
      &actions, STDOUT_FILENO, program.log.c_str(),
      O_WRONLY | O_CREAT | (program.append_to_log ? O_APPEND : O_TRUNC), 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, words[0].c_str(), &actions, &attributes,
                                Pointers(words).data(), Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return pid;
  return absl::InternalError(absl::StrCat("cannot start ", words[0], ": ", std::strerror(error)));
}

std::string LastLines(const std::string& file_name, size_t count) {
  std::ifstream file(file_name, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto size = static_cast<size_t>(file.tellg());
  const size_t from = size > kLogTailBytes ? size - kLogTailBytes : 0;
  file.seekg(static_cast<std::streamoff>(from));
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back(std::move(line));
    if (lines.size() > count) lines.pop_front();
  }
  return absl::StrJoin(lines, "\n");
}

}  // namespace regatta
