#include "coordinator/launcher/leftovers.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <vector>

namespace regatta {
namespace {

constexpr int kRounds = 10;
constexpr int kWaitMilliseconds = 1000;

bool HasMark(pid_t pid, const std::string& mark) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry == mark) return true;
  }
  return false;
}

// The pidfds of all marked processes. Opened before the mark is read again, so that a reused pid is
// never signalled.
std::vector<int> FindMarked(const std::string& mark) {
  std::vector<int> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      continue;
    }
    const pid_t pid = std::stoi(name);
    if (pid == getpid() || !HasMark(pid, mark)) continue;
    const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (pidfd < 0) continue;
    if (HasMark(pid, mark)) {
      found.push_back(pidfd);
    } else {
      close(pidfd);
    }
  }
  return found;
}

}  // namespace

int EndMarkedProcesses(const std::string& mark) {
  int ended = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<int> marked = FindMarked(mark);
    if (marked.empty()) break;
    for (const int pidfd : marked) {
      (void)syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
    }
    for (const int pidfd : marked) {
      pollfd gone{pidfd, POLLIN, 0};
      poll(&gone, 1, kWaitMilliseconds);
      close(pidfd);
      ++ended;
    }
  }
  return ended;
}

}  // namespace regatta
