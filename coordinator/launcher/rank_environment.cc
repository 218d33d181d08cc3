#include "coordinator/launcher/rank_environment.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace regatta {

std::map<std::string, std::string> RankEnvironment(const LaunchRequest& request, int rank,
                                                   const std::string& coordinator_address) {
  const std::string ranks = std::to_string(request.ranks);
  std::map<std::string, std::string> environment = {
      // How a rank finds its run.
      {"REGATTA_COORDINATOR", coordinator_address},
      {"REGATTA_RUN", std::to_string(request.run)},
      {"REGATTA_ATTEMPT", std::to_string(request.attempt)},
      {"REGATTA_TOKEN", request.token},
      // As torchrun names them.
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", ranks},
      {"LOCAL_RANK", std::to_string(rank)},
      {"LOCAL_WORLD_SIZE", ranks},
      {"GROUP_RANK", "0"},
      {"OMP_NUM_THREADS", std::to_string(request.threads_per_rank)},
  };
  environment.insert(request.environment.begin(), request.environment.end());
  if (const auto own = request.rank_environment.find(rank); own != request.rank_environment.end()) {
    environment.insert(own->second.begin(), own->second.end());
  }
  return environment;
}

bool IsLauncherVariable(const std::string& name) {
  constexpr std::array<std::string_view, 9> kPrefixes = {
      "SLURM_", "SLURMD_", "PMI_", "PMIX_", "OMPI_", "MPI_", "I_MPI_", "HYDRA_", "TORCHELASTIC_"};
  constexpr std::array<std::string_view, 17> kNames = {"RANK",
                                                       "WORLD_SIZE",
                                                       "LOCAL_RANK",
                                                       "LOCAL_WORLD_SIZE",
                                                       "GROUP_RANK",
                                                       "GROUP_WORLD_SIZE",
                                                       "ROLE_RANK",
                                                       "ROLE_WORLD_SIZE",
                                                       "ROLE_NAME",
                                                       "NODE_RANK",
                                                       "MASTER_ADDR",
                                                       "MASTER_PORT",
                                                       "OMP_NUM_THREADS",
                                                       "MKL_NUM_THREADS",
                                                       "OPENBLAS_NUM_THREADS",
                                                       "OMP_PROC_BIND",
                                                       "GOMP_CPU_AFFINITY"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); }) ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

}  // namespace regatta
