#include "coordinator/launcher/supervise.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "coordinator/launcher/identity.h"
#include "coordinator/launcher/rank_environment.h"

namespace regatta {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr auto kLeftoverTime = std::chrono::seconds(10);

void WriteAll(int fd, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) {
      std::fprintf(stderr, "supervise: writing '%s' failed: %s\n", text.c_str(), strerror(errno));
      return;
    }
    if (n > 0) done += static_cast<size_t>(n);
  }
}

// What torchrun, Slurm or MPI told this process is not about its ranks.
void ForgetOtherLaunchers() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string name(*entry, std::strcspn(*entry, "="));
    if (IsLauncherVariable(name)) names.push_back(std::move(name));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

class Supervisor {
 public:
  Supervisor(std::string folder, nlohmann::json launch, int exits_fd, int signal_fd)
      : folder_(std::move(folder)),
        launch_(std::move(launch)),
        exits_fd_(exits_fd),
        signal_fd_(signal_fd) {}

  void StartRanks() {
    for (size_t rank = 0; rank < launch_["ranks"].size(); ++rank) {
      const pid_t pid = StartRank(launch_["ranks"][rank]);
      pids_.push_back(pid);
      WriteAll(exits_fd_, "start " + std::to_string(rank) + " " + std::to_string(pid) + "\n");
    }
  }

  void WaitForRanks() {
    Reap();
    while (AnyAlive()) {
      pollfd wait{signal_fd_, POLLIN, 0};
      if (poll(&wait, 1, MillisecondsToKill()) > 0) ReadSignals();
      if (kill_at_ && SteadyClock::now() >= *kill_at_) {
        SignalRanks(SIGKILL);
        kill_at_.reset();
      }
      Reap();
    }
  }

  // What ranks started and left behind has become our child. Bounded in time: a process that the
  // system cannot end, such as one that waits for a dead disk, must not hold the run for ever.
  void KillLeftovers() {
    const auto deadline = SteadyClock::now() + kLeftoverTime;
    for (;;) {
      std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
      pid_t child = 0;
      pid_t last = 0;
      while (file >> child) {
        kill(child, SIGKILL);
        last = child;
      }
      if (last == 0) return;
      if (SteadyClock::now() >= deadline) {
        std::fprintf(stderr, "supervise: process %d does not end\n", last);
        return;
      }
      pollfd wait{signal_fd_, POLLIN, 0};
      poll(&wait, 1, 100);
      ReadSignals();
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
    }
  }

 private:
  pid_t StartRank(const nlohmann::json& rank) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid != 0) return pid;
    // The child. One thread, so ordinary calls are allowed here.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const std::string log = folder_ + "/" + rank["log"].get<std::string>();
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) _exit(126);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    ForgetOtherLaunchers();
    for (const auto& [name, value] : rank["env"].items()) {
      setenv(name.c_str(), value.get<std::string>().c_str(), 1);
    }
    std::vector<std::string> words = launch_["argv"];
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    const int error = errno;
    WriteAll(STDERR_FILENO, "cannot start " + words[0] + ": " + strerror(error) + "\n");
    _exit(127);
  }

  void ReadSignals() {
    signalfd_siginfo info;
    while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
      const bool stop = info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT;
      if (!stop || stopping_) continue;
      Reap();  // who has ended before this moment has ended by itself
      stopping_ = true;
      kill_at_ = SteadyClock::now() + std::chrono::milliseconds(launch_["grace_ms"].get<int>());
      SignalRanks(SIGTERM);
    }
  }

  void SignalRanks(int signal) {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(pid, signal);
    }
  }

  void Reap() {
    int status = 0;
    for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
      for (size_t rank = 0; rank < pids_.size(); ++rank) {
        if (pids_[rank] != pid) continue;
        pids_[rank] = 0;
        WriteAll(exits_fd_, "exit " + std::to_string(rank) + " " + std::to_string(status) +
                                (stopping_ ? " 1\n" : " 0\n"));
      }
    }
  }

  bool AnyAlive() const {
    for (const pid_t pid : pids_) {
      if (pid > 0) return true;
    }
    return false;
  }

  int MillisecondsToKill() const {
    if (!kill_at_) return -1;
    const auto left = *kill_at_ - SteadyClock::now();
    return std::max(
        0,
        static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(left).count()) + 1);
  }

  const std::string folder_;
  nlohmann::json launch_;
  const int exits_fd_;
  const int signal_fd_;
  std::vector<pid_t> pids_;  // by rank; 0: has ended
  bool stopping_ = false;
  std::optional<SteadyClock::time_point> kill_at_;
};

}  // namespace

int Supervise(const std::string& folder) {
  close_range(3, ~0U, 0);  // the daemon's sockets and database are not ours
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::ifstream file(folder + "/launch.json");
  nlohmann::json launch = nlohmann::json::parse(file, nullptr, false);
  if (launch.is_discarded()) {
    std::fprintf(stderr, "supervise: %s/launch.json cannot be read\n", folder.c_str());
    return 1;
  }
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&signals, signal);
  sigprocmask(SIG_SETMASK, &signals, nullptr);
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  const int exits_fd =
      open((folder + "/exits").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (signal_fd < 0 || exits_fd < 0) {
    std::fprintf(stderr, "supervise: %s/exits: %s\n", folder.c_str(), strerror(errno));
    return 1;
  }
  {
    std::ofstream identity(folder + "/supervisor.part");
    identity << ProcessIdentity(getpid()) << "\n";
  }
  if (rename((folder + "/supervisor.part").c_str(), (folder + "/supervisor").c_str()) != 0) {
    std::fprintf(stderr, "supervise: %s/supervisor: %s\n", folder.c_str(), strerror(errno));
    return 1;
  }
  Supervisor supervisor(folder, std::move(launch), exits_fd, signal_fd);
  supervisor.StartRanks();
  supervisor.WaitForRanks();
  supervisor.KillLeftovers();
  return 0;
}

}  // namespace regatta
