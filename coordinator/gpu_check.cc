#include "coordinator/gpu_check.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "coordinator/launcher/child.h"

namespace regatta {

std::vector<std::string> VisibleGpus() {
  std::error_code none;
  size_t count = 0;
  for (const auto& gpu : std::filesystem::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    (void)gpu;
    ++count;
  }
  std::vector<std::string> gpus;
  for (size_t i = 0; i < count; ++i) gpus.push_back(absl::StrCat(i));
  const char* const named = std::getenv("CUDA_VISIBLE_DEVICES");
  if (count == 0 || named == nullptr) return gpus;
  return absl::StrSplit(named, ',', absl::SkipWhitespace());
}

std::string CheckGpus(const std::string& worker_program, const std::string& log, int gpus) {
  const absl::StatusOr<pid_t> child =
      SpawnChild({.words = {worker_program, "--check-gpus"}, .log = log});
  if (!child.ok()) return std::string(child.status().message());
  int status = 0;
  while (waitpid(*child, &status, 0) < 0) {
    if (errno != EINTR) return absl::StrCat(worker_program, " --check-gpus was lost");
  }
  const std::string said = LastLines(log, 1);
  int devices = 0;
  if (!WIFEXITED(status) || (WEXITSTATUS(status) == 0 && !absl::SimpleAtoi(said, &devices))) {
    return absl::StrCat("GPUs cannot be looked for (", log, ")");
  }
  if (WEXITSTATUS(status) != 0) return said;
  if (gpus <= devices) return "";
  return absl::StrCat(gpus, " ranks need a GPU each, and ", devices, devices == 1 ? " is" : " are",
                      " visible; fewer ranks, or backend: gloo, is right");
}

}  // namespace regatta
