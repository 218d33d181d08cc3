#include "coordinator/launcher/supervise.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "coordinator/launcher/identity.h"
#include "coordinator/launcher/rank_environment.h"
#include "coordinator/launcher/rank_group.h"

namespace regatta {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr auto kLookAtLogs = std::chrono::seconds(1);

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

// The cores that a rank may run on: [0, 2]. An empty list leaves it all.
void PinTo(const nlohmann::json& cores) {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0)
    std::fprintf(stderr, "supervise: cannot pin to cores %s: %s\n", cores.dump().c_str(),
                 strerror(errno));
}

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Supervisor {
 public:
  Supervisor(std::string folder, nlohmann::json launch, int exits_fd, int signal_fd)
      : folder_(std::move(folder)),
        launch_(std::move(launch)),
        exits_fd_(exits_fd),
        signal_fd_(signal_fd) {}

  void StartRanks() {
    MakeGroups();
    for (size_t number = 0; number < ranks_.size(); ++number) {
      ranks_[number].pid = StartRank(launch_["ranks"][number], ranks_[number].group);
      ranks_[number].identity = ProcessIdentity(ranks_[number].pid);
      WriteAll(exits_fd_,
               "start " + std::to_string(number) + " " + std::to_string(ranks_[number].pid) + "\n");
    }
  }

  // Until all ranks have ended, or those that are left do not end though they were killed.
  void WaitForRanks() {
    Reap();
    while (AnyAlive()) {
      pollfd wait{signal_fd_, POLLIN, 0};
      if (poll(&wait, 1, MillisecondsToAct()) > 0) ReadSignals();
      Reap();
      const auto now = SteadyClock::now();
      if (now >= next_look_) LookAtLogs(now);
      if (kill_at_ && now >= *kill_at_) {
        kill_at_.reset();
        give_up_at_ = now + std::chrono::milliseconds(launch_["give_up_ms"].get<int>());
        SignalRanks(SIGKILL);
        for (const Rank& rank : ranks_) rank.group.Kill();
      }
      if (give_up_at_ && now >= *give_up_at_) return TellStuckRanks();
    }
  }

  // What ranks started and left behind has become our child. Bounded in time: a process that the
  // system cannot end, such as one that waits for a dead disk, must not hold the run for ever.
  void KillLeftovers() {
    const auto give_up =
        std::chrono::milliseconds(AnyAlive() ? 0 : launch_["give_up_ms"].get<int>());
    const auto deadline = SteadyClock::now() + give_up;
    for (const Rank& rank : ranks_) rank.group.Kill();
    for (;;) {
      std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/children");
      pid_t child = 0;
      pid_t last = 0;
      while (file >> child) {
        kill(child, SIGKILL);
        last = child;
      }
      if (last == 0) break;
      if (SteadyClock::now() >= deadline) {
        std::fprintf(stderr, "supervise: process %d does not end\n", last);
        break;
      }
      pollfd wait{signal_fd_, POLLIN, 0};
      poll(&wait, 1, 100);
      ReadSignals();
      while (waitpid(-1, nullptr, WNOHANG) > 0) {
      }
    }
    for (const Rank& rank : ranks_) {
      if (!rank.group.Remove())
        std::fprintf(stderr, "supervise: a control group is left: %s\n", strerror(errno));
    }
  }

 private:
  struct Rank {
    pid_t pid = 0;  // 0: has ended
    std::string identity;
    RankGroup group;
    int64_t log_bytes = 0;  // as last looked at
  };

  void MakeGroups() {
    const GroupParents parents =
        FindGroupParents(ReadText("/proc/self/mounts"), ReadText("/proc/self/cgroup"));
    ranks_.resize(launch_["ranks"].size());
    std::ofstream list(folder_ + "/groups");  // for who comes after us, should we be killed
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].group = RankGroup::Make(
          parents, "regatta-" + std::to_string(getpid()) + "-" + std::to_string(rank));
      for (const std::string& group : ranks_[rank].group.Folders()) list << group << "\n";
    }
  }

  pid_t StartRank(const nlohmann::json& rank, const RankGroup& group) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid != 0) return pid;
    // The child. One thread, so ordinary calls are allowed here.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    if (!group.Enter())
      std::fprintf(stderr, "supervise: cannot enter a control group: %s\n", strerror(errno));
    PinTo(rank["cores"]);
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
    for (const Rank& rank : ranks_) {
      if (rank.pid > 0) kill(rank.pid, signal);
    }
  }

  void Reap() {
    int status = 0;
    for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (ranks_[rank].pid != pid) continue;
        ranks_[rank].pid = 0;
        WriteAll(exits_fd_, "exit " + std::to_string(rank) + " " + std::to_string(status) +
                                (stopping_ ? " 1 " : " 0 ") +
                                std::to_string(ranks_[rank].group.OomKills()) + "\n");
      }
    }
  }

  void TellStuckRanks() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].pid == 0) continue;
      WriteAll(exits_fd_, "stuck " + std::to_string(rank) + " " + ranks_[rank].identity + "\n");
    }
  }

  // Keeps when each log had how many bytes, so that it can be read from a moment on.
  void LookAtLogs(SteadyClock::time_point now) {
    next_look_ = now + kLookAtLogs;
    for (size_t number = 0; number < ranks_.size(); ++number) {
      const std::string log = folder_ + "/" + launch_["ranks"][number]["log"].get<std::string>();
      struct stat info {};
      if (stat(log.c_str(), &info) != 0 || info.st_size == ranks_[number].log_bytes) continue;
      ranks_[number].log_bytes = info.st_size;
      std::ofstream times(log + ".times", std::ios::app);
      times << std::chrono::duration_cast<std::chrono::microseconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count()
            << " " << info.st_size << "\n";
    }
  }

  bool AnyAlive() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.pid > 0; });
  }

  int MillisecondsToAct() const {
    auto next = next_look_;
    if (kill_at_) next = std::min(next, *kill_at_);
    if (give_up_at_) next = std::min(next, *give_up_at_);
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(next - SteadyClock::now()).count();
    return std::max(0, static_cast<int>(left) + 1);
  }

  const std::string folder_;
  nlohmann::json launch_;
  const int exits_fd_;
  const int signal_fd_;
  std::vector<Rank> ranks_;
  bool stopping_ = false;
  std::optional<SteadyClock::time_point> kill_at_;
  std::optional<SteadyClock::time_point> give_up_at_;
  SteadyClock::time_point next_look_ = SteadyClock::now() + kLookAtLogs;
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
