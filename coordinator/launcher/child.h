#pragma once

#include <absl/status/statusor.h>
#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace regatta {

// A program that the daemon starts beside itself.
struct ChildProgram {
  std::vector<std::string> words;                       // the program's path and its arguments
  std::string log;                                      // where stdout and stderr go
  bool append_to_log = false;                           // else an older log is cut off
  std::map<std::string, std::string> environment = {};  // on top of the daemon's own
};

// Starts it in a session of its own, with no signal blocked or ignored and nothing to read: the
// daemon's terminal is not its business, and the process group is what to signal. posix_spawn,
// because gRPC's threads are running.
[[nodiscard]] absl::StatusOr<pid_t> SpawnChild(const ChildProgram& program);

// The last `count` lines of a log with something on them, fewer where they are long, or an empty
// string: why a process that could not report went down. Reads the end of the file alone.
[[nodiscard]] std::string LastLines(const std::string& file_name, size_t count);

}  // namespace regatta
