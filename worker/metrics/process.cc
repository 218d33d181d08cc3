#include "worker/metrics/process.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <link.h>
#include <torch/version.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>

#include "worker/metrics/build_info.h"

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

// "0-3,8" as the kernel writes it.
std::string AllowedCores() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "Cpus_allowed_list:" && status >> word) return word;
  }
  return "unknown";
}

// The linker's hash of this program (NT_GNU_BUILD_ID), as `file` and `readelf -n` show it.
int FindBuildId(dl_phdr_info* object, size_t, void* to) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
    const char* const end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof(note));
      const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
      const char* const content = at + sizeof(note) + padded(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID) {
        for (size_t b = 0; b < note.n_descsz; ++b) {
          char hex[3];
          std::snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(content[b]));
          *static_cast<std::string*>(to) += hex;
        }
        return 1;
      }
      at = content + padded(note.n_descsz);
    }
  }
  return 1;  // the program itself comes first; libraries are not asked
}

std::string BuildId() {
  std::string id;
  dl_iterate_phdr(FindBuildId, &id);
  return id.empty() ? "none" : id;
}

}  // namespace

int64_t PeakRssBytes() { return StatusBytes("VmHWM:"); }

std::vector<std::pair<std::string, std::string>> ProcessFacts() {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  return {{"host", host},
          {"cpu", CpuName()},
          {"cpu_capability", at::get_cpu_capability()},
          {"cores", AllowedCores()},
          {"memory_bytes",
           std::to_string(static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE))},
          {"gpu", "none"},  // until the rank has trained on one
          {"commit", kBuildCommit},
          {"binary", BuildId()},
          {"libtorch", TORCH_VERSION},
          {"pid", std::to_string(getpid())}};
}

}  // namespace regatta
