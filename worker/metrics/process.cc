#include "worker/metrics/process.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/version.h>
#include <unistd.h>

#include <fstream>

namespace regatta {
namespace {

// A line of /proc/self/status such as "VmHWM:   123456 kB".
int64_t StatusBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    int64_t kibibytes = 0;
    if (word == field && status >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

int64_t PeakRssBytes() { return StatusBytes("VmHWM:"); }

std::vector<std::pair<std::string, std::string>> ProcessFacts() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return {{"host", host},
          {"cpu", CpuName()},
          {"cpu_capability", at::get_cpu_capability()},
          {"libtorch", TORCH_VERSION},
          {"pid", std::to_string(getpid())}};
}

}  // namespace regatta
