// libFuzzer's entry: whatever bytes a file holds, the parser answers with an experiment or a
// sentence.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "coordinator/experiment/experiment.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto experiment =
      regatta::ParseExperiment({.text = text}, {.file_name = "f.yaml",
                                                .folder = "/nonexistent",
                                                .material = "/nonexistent/material",
                                                .cores = 2});
  // An answer without a place would send people searching.
  if (!experiment.ok() && experiment.status().message().find("f.yaml") == std::string::npos)
    abort();
  if (experiment.ok() && experiment->runs.empty()) abort();
  return 0;
}
