#pragma once

#include <map>
#include <string>

#include "coordinator/launcher/launcher.h"

namespace regatta {

// What one rank is told by its environment: how it finds its run, and what torchrun tells ranks
// under the same names. The experiment's own variables come first, so that they override nothing.
[[nodiscard]] std::map<std::string, std::string> RankEnvironment(
    const LaunchRequest& request, int rank, const std::string& coordinator_address);

// Whether an inherited variable tells a process that some launcher started it (torchrun, Slurm,
// MPI) or how many threads to use. A coordinator inside an allocation or a torchrun must not pass
// these on: ranks would believe them.
[[nodiscard]] bool IsLauncherVariable(const std::string& name);

}  // namespace regatta
