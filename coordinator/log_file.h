#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

namespace regatta {

struct LogChunk {
  std::string data;  // raw bytes, at most 1 MiB
  int64_t next_offset = 0;
  int64_t size = 0;  // of the file now
};

// A piece of a rank's log, in any state of its run, with or without a daemon. `attempt` 0 is the
// latest. A negative offset counts from the end. NOT_FOUND names what there is.
[[nodiscard]] absl::StatusOr<LogChunk> ReadLogChunk(const std::string& state_folder, int64_t run,
                                                    int attempt, int rank, int64_t offset);

}  // namespace regatta
