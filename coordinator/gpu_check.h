#pragma once

#include <string>

namespace regatta {

// Why so many ranks of a run cannot have a GPU each (`shares`: share those there are) on this
// machine: one sentence, or empty where they can. Asks `worker_program --check-gpus`, because the
// coordinator itself opens no library of CUDA; what it printed stays in `log`. Takes seconds.
[[nodiscard]] std::string CheckGpus(const std::string& worker_program, const std::string& log,
                                    int ranks, bool shares);

}  // namespace regatta
