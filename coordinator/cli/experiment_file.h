#pragma once

#include <absl/status/statusor.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "coordinator/experiment/experiment.h"

namespace regatta {

// The options that name an experiment on a command line: FILE or -f FILE, --set, --strict.
struct FileOptions {
  std::string file;
  std::vector<std::string> sets;
  bool strict = false;
};
void AddFileOptions(CLI::App* verb, FileOptions& options);

// An experiment file with all that is needed to read it somewhere else.
struct ExperimentFile {
  std::string name;    // for messages
  std::string folder;  // absolute; relative paths in the file start here
  ExperimentSource source;
  std::map<std::string, std::string> environment;  // of the variables that the file names
};

// Reads the file ("-": standard input). INVALID_ARGUMENT where it cannot be read.
[[nodiscard]] absl::StatusOr<ExperimentFile> ReadExperimentFile(const FileOptions& options);

}  // namespace regatta
