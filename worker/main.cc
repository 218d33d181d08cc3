#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "strategies/cuda/gpu_module.h"
#include "worker/exit_codes.h"
#include "worker/rank.h"

namespace {

// How many GPUs ranks would see here, or why none can be used: one line.
int CheckGpus() {
  try {
    regatta::GpuModule& gpu = regatta::OpenGpuModule();
    const std::string wrong = gpu.WhyUnusable();
    if (wrong.empty()) {
      std::printf("%d\n", gpu.Devices());
      return regatta::kExitOk;
    }
    std::printf("%s\n", wrong.c_str());
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
  }
  return regatta::kExitFailed;
}

}  // namespace

// regatta-worker: one rank of a run. Started by regattad; all it needs is in its environment and in
// the run's spec. With --check-gpus it only says what GPUs it could use.
int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--check-gpus") == 0) {
    const int found = CheckGpus();
    std::fflush(nullptr);
    _exit(found);
  }
  const int code = regatta::RunRank({});
  std::fflush(nullptr);
  _exit(code);  // the result is delivered; LibTorch's and gRPC's unwinding takes longer than it is
                // worth
}
