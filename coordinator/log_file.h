#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>

namespace regatta {

// Where to read: of a rank's log, from a place or a moment on.
struct LogPlace {
  int64_t run = 0;
  int attempt = 0;  // 0: the latest
  int rank = 0;
  int64_t offset = 0;    // negative: counted from the end
  int64_t since_us = 0;  // not 0: the line that was being written then (UTC, to a second), instead
};

struct LogChunk {
  std::string data;  // raw bytes, at most 1 MiB
  int64_t next_offset = 0;
  int64_t size = 0;  // of the file now
};

// What an attempt's folder holds once its logs were removed: a file with the moment (UTC
// microseconds).
inline constexpr const char* kRemovedNote = "logs_removed";

// A piece of a rank's log, in any state of its run, with or without a daemon. NOT_FOUND names what
// there is, or says that the log was removed and when.
[[nodiscard]] absl::StatusOr<LogChunk> ReadLogChunk(const std::string& state_folder,
                                                    const LogPlace& place);

}  // namespace regatta
