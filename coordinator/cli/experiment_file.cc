#include "coordinator/cli/experiment_file.h"

#include <absl/strings/str_cat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace regatta {

void AddFileOptions(CLI::App* verb, FileOptions& options) {
  verb->add_option("file,-f,--file", options.file, "Experiment file; - reads standard input")
      ->required();
  verb->add_option("--set", options.sets, "KEY=VALUE: a key of the file, such as run.ranks=4")
      ->allow_extra_args(false);
  verb->add_flag("--strict", options.strict, "Warnings about the file are errors");
}

absl::StatusOr<ExperimentFile> ReadExperimentFile(const FileOptions& options) {
  ExperimentFile file;
  std::stringstream text;
  if (options.file == "-") {
    text << std::cin.rdbuf();
    file.name = "standard input";
    file.folder = std::filesystem::current_path().string();
  } else {
    std::ifstream stream(options.file);
    if (!stream || std::filesystem::is_directory(options.file)) {
      return absl::InvalidArgumentError(
          absl::StrCat("experiment file '", options.file, "' cannot be read"));
    }
    text << stream.rdbuf();
    file.name = options.file;
    file.folder = std::filesystem::absolute(options.file).parent_path().string();
  }
  file.source = {.text = text.str(), .sets = options.sets, .strict = options.strict};
  for (const std::string& variable : WantedEnvironment(file.source)) {
    if (const char* value = std::getenv(variable.c_str()); value != nullptr) {
      file.environment[variable] = value;
    }
  }
  return file;
}

}  // namespace regatta
