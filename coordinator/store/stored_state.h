#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/store/reader.h"

namespace regatta {

struct StoredExperiment {
  int64_t id = 0;
  std::string token;
  int64_t max_parallel = 1;
  double join_timeout_seconds = 0;
  double timeout_seconds = 0;
  double queue_timeout_seconds = 0;
  int64_t submitted_us = 0;
};

struct StoredRun {
  int64_t id = 0;
  int64_t experiment = 0;
  std::string state;
  int attempt = 0;     // the latest; 0: none
  std::string folder;  // of that attempt
  std::string spec;    // serialized v1::RunSpec (as JSON before version 2)
  bool ended = false;
};

// What an earlier daemon left in the database, in order of ids: where a new one starts from.
struct StoredState {
  std::vector<StoredExperiment> experiments;
  std::vector<StoredRun> runs;
};

[[nodiscard]] absl::StatusOr<StoredState> ReadStoredState(Reader& reader);

}  // namespace regatta
