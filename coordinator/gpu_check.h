#pragma once

#include <string>
#include <vector>

namespace regatta {

// Those that CUDA_VISIBLE_DEVICES names, else "0", "1", ... of the driver; none where there is
// none.
[[nodiscard]] std::vector<std::string> VisibleGpus();

// Why a run cannot have so many GPUs on this machine: one sentence, or empty where it can. Asks
// `worker_program --check-gpus`, because the coordinator itself opens no library of CUDA; what it
// printed stays in `log`. Takes seconds.
[[nodiscard]] std::string CheckGpus(const std::string& worker_program, const std::string& log,
                                    int gpus);

}  // namespace regatta
