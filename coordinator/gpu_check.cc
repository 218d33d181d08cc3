#include "coordinator/gpu_check.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <sys/wait.h>

#include <cerrno>

#include "coordinator/launcher/child.h"

namespace regatta {

std::string CheckGpus(const std::string& worker_program, const std::string& log, int ranks,
                      bool shares) {
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
  if (shares || ranks <= devices) return "";
  return absl::StrCat(ranks, " ranks need a GPU each, and ", devices, devices == 1 ? " is" : " are",
                      " visible; fewer ranks, or backend: gloo, is right");
}

}  // namespace regatta
