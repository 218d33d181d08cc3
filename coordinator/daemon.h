#pragma once

#include <absl/status/status.h>

#include <string>

#include "coordinator/log_retention.h"

namespace regatta {

struct DaemonOptions {
  std::string state_folder;
  std::string material_folder;
  std::string worker_program;
  int slots = 0;  // 0: as many as cores
  RetentionLimits keep_logs;
  int http_port = 0;         // -1: no status page; 0: any free port
  bool with_parent = false;  // end when the process that started this one ends
};

// Runs the coordinator until SIGTERM or SIGINT. Prints "ready ADDRESS PAGE" to stdout when it
// answers.
[[nodiscard]] absl::Status RunDaemon(const DaemonOptions& options);

}  // namespace regatta
