#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace regatta {

// Where a process may make control groups: folders of the cgroup file systems, each with whether
// groups there tell of out-of-memory kills.
struct GroupParents {
  std::vector<std::string> unified;  // version 2: own group, then the one above it
  std::string memory;                // version 1's memory controller; empty: not mounted
};

// From the texts of /proc/self/mounts and /proc/self/cgroup. Pure.
[[nodiscard]] GroupParents FindGroupParents(const std::string& mounts, const std::string& groups);

// A control group of one rank's own, where the system lets this process make one (version 2, else
// version 1's memory controller, else none): it tells whether the out-of-memory killer took
// something of the rank, and version 2 ends everything in it at once.
class RankGroup {
 public:
  RankGroup() = default;  // none
  explicit RankGroup(std::vector<std::string> folders) : folders_(std::move(folders)) {}
  [[nodiscard]] static RankGroup Make(const GroupParents& parents, const std::string& name);

  // Moves the calling process into it. False where the system refuses.
  [[nodiscard]] bool Enter() const;
  // Processes of it that the out-of-memory killer has ended; 0 where nobody counts.
  [[nodiscard]] int64_t OomKills() const;
  // Ends every process in it (SIGKILL), where the kernel can.
  void Kill() const;
  // False while processes are in it.
  [[nodiscard]] bool Remove() const;

  [[nodiscard]] const std::vector<std::string>& Folders() const { return folders_; }

 private:
  std::vector<std::string> folders_;
};

}  // namespace regatta
