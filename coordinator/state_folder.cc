#include "coordinator/state_folder.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

namespace regatta {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string_view NetworkFileSystem(uint32_t type) {
  constexpr std::pair<uint32_t, std::string_view> kTypes[] = {
      {0x6969, "NFS"},      {0xFF534D42, "CIFS"},   {0xFE534D42, "SMB2"}, {0x517B, "SMB"},
      {0x00C36400, "Ceph"}, {0x0BD00BD0, "Lustre"}, {0x47504653, "GPFS"}, {0x19830326, "BeeGFS"},
      {0x01021997, "9P"},   {0x5346414F, "AFS"},    {0x01161970, "GFS2"}, {0x7461636F, "OCFS2"}};
  for (const auto& [number, name] : kTypes) {
    if (number == type) return name;
  }
  return "";
}

absl::StatusOr<std::unique_ptr<StateFolder>> StateFolder::Claim(const std::string& path) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  std::filesystem::create_directories(absolute, error);
  if (error)
    return absl::FailedPreconditionError(
        absl::StrCat("state folder '", absolute, "': ", error.message()));
  struct statfs system {};
  if (statfs(absolute.c_str(), &system) == 0) {
    const std::string network(NetworkFileSystem(static_cast<uint32_t>(system.f_type)));
    if (!network.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("state folder '", absolute, "' is on a network file system (", network,
                       "), where SQLite's locks are not safe; name a local one with --state"));
    }
  }
  const std::string lock = absolute + "/lock";
  const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::FailedPreconditionError(absl::StrCat(lock, ": ", std::strerror(errno)));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    std::string owner;
    std::ifstream(lock) >> owner;
    close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat("state folder '", absolute, "' belongs to a running regattad (pid ", owner,
                     "); use that one, or another folder with --state"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 ||
      write(fd, pid.data(), pid.size()) != static_cast<ssize_t>(pid.size())) {
    const std::string why = std::strerror(errno);
    close(fd);
    return absl::FailedPreconditionError(absl::StrCat(lock, ": ", why));
  }
  return std::unique_ptr<StateFolder>(new StateFolder(absolute, fd));
}

StateFolder::~StateFolder() {
  unlink((path_ + "/address").c_str());
  unlink(SocketAddress().substr(std::strlen("unix:")).c_str());
  close(lock_fd_);
}

std::string StateFolder::SocketAddress() const {
  const std::string in_folder = path_ + "/socket";
  if (in_folder.size() < sizeof(sockaddr_un::sun_path)) return "unix:" + in_folder;
  // The name must be the same for every daemon of this folder, and short.
  return absl::StrCat("unix:", std::filesystem::temp_directory_path().string(), "/regatta-",
                      getuid(), "-", absl::Hex(std::hash<std::string>()(path_)), ".socket");
}

absl::Status StateFolder::PublishAddress() {
  const std::string part = path_ + "/address.part";
  std::ofstream file(part);
  file << SocketAddress() << "\n";
  file.close();
  if (!file || rename(part.c_str(), (path_ + "/address").c_str()) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(path_, "/address: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FindDaemon(const std::string& path) {
  std::ifstream file(path + "/address");
  std::string address;
  if (file >> address) return address;
  return absl::UnavailableError(
      absl::StrCat("no coordinator runs on state folder '", path, "'; start one: regattad --state ",
                   path, ", or run the experiment without one: regatta run FILE"));
}

std::string DefaultStateFolder() {
  if (std::string state = Environment("REGATTA_STATE"); !state.empty()) return state;
  if (const std::string xdg = Environment("XDG_STATE_HOME"); !xdg.empty()) return xdg + "/regatta";
  return Environment("HOME") + "/.local/state/regatta";
}

std::string DefaultMaterialFolder() {
  const std::string material = Environment("REGATTA_MATERIAL");
  return material.empty() ? "material" : material;
}

}  // namespace regatta
