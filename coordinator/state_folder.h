#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace regatta {

// A state folder that this process owns: regatta.db, runs/, lock, address. One daemon a folder.
class StateFolder {
 public:
  // Makes the folder where it is missing. FAILED_PRECONDITION names the daemon that has it already.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<StateFolder>> Claim(const std::string& path);
  ~StateFolder();  // takes the address away, releases the lock
  StateFolder(const StateFolder&) = delete;
  StateFolder& operator=(const StateFolder&) = delete;

  [[nodiscard]] const std::string& Path() const { return path_; }  // absolute
  // Where this folder's daemon listens, "unix:/...": in the folder where the path is short enough
  // for a socket.
  [[nodiscard]] std::string SocketAddress() const;
  // Tells clients: the daemon answers now.
  [[nodiscard]] absl::Status PublishAddress();

 private:
  StateFolder(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
  const std::string path_;
  const int lock_fd_;
};

// The name of the network file system that statfs(2) calls `type`; empty for others.
[[nodiscard]] std::string_view NetworkFileSystem(uint32_t type);

// Where the daemon of `path` listens. UNAVAILABLE says that none runs and how to start one.
[[nodiscard]] absl::StatusOr<std::string> FindDaemon(const std::string& path);

// --state's default: $REGATTA_STATE, else $XDG_STATE_HOME/regatta, else ~/.local/state/regatta.
[[nodiscard]] std::string DefaultStateFolder();
// --material's default: $REGATTA_MATERIAL, else ./material.
[[nodiscard]] std::string DefaultMaterialFolder();

}  // namespace regatta
