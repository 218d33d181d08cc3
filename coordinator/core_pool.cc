#include "coordinator/core_pool.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <tuple>

namespace regatta {
namespace {

// A number of /sys/devices/system/cpu/cpuN/topology; `otherwise` where the system does not say.
int Topology(int cpu, const char* what, int otherwise) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + what);
  int number = 0;
  return file >> number ? number : otherwise;
}

}  // namespace

std::vector<Core> MachineCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<Core> cores;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    cores.push_back({cpu, Topology(cpu, "physical_package_id", 0), Topology(cpu, "core_id", cpu)});
  }
  return cores;
}

CorePool::CorePool(std::vector<Core> cores) {
  std::sort(cores.begin(), cores.end(), [](const Core& a, const Core& b) {
    return std::tie(a.package, a.physical, a.id) < std::tie(b.package, b.physical, b.id);
  });
  for (const Core& core : cores) {
    const bool first = cores_.empty() || cores_.back().core.package != core.package ||
                       cores_.back().core.physical != core.physical;
    cores_.push_back({core, first, false});
  }
}

std::vector<std::vector<int>> CorePool::Take(int ranks, int threads) {
  const auto wanted = static_cast<std::ptrdiff_t>(ranks) * threads;
  const auto whole_is_free = [&](const Slot& slot) {
    return slot.first_sibling && std::none_of(cores_.begin(), cores_.end(), [&](const Slot& other) {
             return other.taken && other.core.package == slot.core.package &&
                    other.core.physical == slot.core.physical;
           });
  };
  const auto free = [](const Slot& slot) { return !slot.taken; };
  const bool spread = std::count_if(cores_.begin(), cores_.end(), whole_is_free) >= wanted;
  if (!spread && std::count_if(cores_.begin(), cores_.end(), free) < wanted) return {};
  std::vector<Slot*> chosen;
  for (Slot& slot : cores_) {
    if (spread ? whole_is_free(slot) : free(slot)) chosen.push_back(&slot);
  }
  std::vector<std::vector<int>> taken(static_cast<size_t>(ranks));
  for (std::ptrdiff_t i = 0; i < wanted; ++i) {
    Slot& slot = *chosen[static_cast<size_t>(i)];
    slot.taken = true;
    taken[static_cast<size_t>(i / threads)].push_back(slot.core.id);
  }
  return taken;
}

void CorePool::GiveBack(const std::vector<int>& cores) {
  for (Slot& slot : cores_) {
    if (std::find(cores.begin(), cores.end(), slot.core.id) != cores.end()) slot.taken = false;
  }
}

}  // namespace regatta
