#include "coordinator/launcher/local.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "coordinator/launcher/child.h"
#include "coordinator/launcher/identity.h"
#include "coordinator/launcher/leftovers.h"
#include "coordinator/launcher/rank_environment.h"
#include "coordinator/launcher/rank_group.h"

namespace regatta {
namespace {

int PidfdOpen(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }
int PidfdSignal(int pidfd, int signal) {
  return static_cast<int>(syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

absl::Status SystemError(const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// What every process of an attempt has in its environment, and no other.
std::string TokenMark(const std::string& token) { return "REGATTA_TOKEN=" + token; }

// The token of a gang that an earlier daemon started.
std::string StoredToken(const std::string& folder) {
  std::ifstream file(folder + "/launch.json");
  const nlohmann::json launch = nlohmann::json::parse(file, nullptr, false);
  const nlohmann::json none = nlohmann::json::object();
  const nlohmann::json& ranks = launch.is_object() ? launch.value("ranks", none) : none;
  if (!ranks.is_array() || ranks.empty()) return "";
  return ranks[0].value("env", none).value("REGATTA_TOKEN", "");
}

constexpr size_t kLastLines = 10;
constexpr int kGroupRounds = 50;
constexpr int kGroupWaitMs = 20;

// Control groups that a supervisor could not remove itself, with whatever is still in them.
void EndGroups(const std::string& folder) {
  std::ifstream file(folder + "/groups");
  for (std::string path; std::getline(file, path);) {
    const RankGroup group({path});
    group.Kill();
    for (int round = 0; !group.Remove() && round < kGroupRounds; ++round) {
      poll(nullptr, 0, kGroupWaitMs);  // what was killed needs a moment to leave it
    }
  }
}

absl::Status WriteLaunchFile(const LaunchRequest& request, const LocalOptions& options) {
  nlohmann::json launch = {{"argv", {options.worker_program}},
                           {"grace_ms", options.grace_ms},
                           {"give_up_ms", options.give_up_ms}};
  for (int rank = 0; rank < request.ranks; ++rank) {
    const auto number = static_cast<size_t>(rank);
    launch["ranks"].push_back(
        {{"env", RankEnvironment(request, rank, options.coordinator_address)},
         {"log", absl::StrCat("rank_", rank, ".log")},
         {"cores", request.cores.empty() ? std::vector<int>() : request.cores[number]}});
  }
  const std::string path = request.folder + "/launch.json";
  // The ranks' token is in it.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return SystemError(path);
  const std::string text = launch.dump();
  const ssize_t written = write(fd, text.data(), text.size());
  const int error = errno;
  close(fd);
  errno = written < 0 ? error : ENOSPC;
  return written == static_cast<ssize_t>(text.size()) ? absl::OkStatus() : SystemError(path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalLauncher>> LocalLauncher::Make(LocalOptions options,
                                                                   LaunchListener listener) {
  if (access(options.worker_program.c_str(), X_OK) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("worker program '", options.worker_program,
                                                      "' cannot be run: ", std::strerror(errno),
                                                      "; build it, or name another with --worker"));
  }
  std::unique_ptr<LocalLauncher> launcher(
      new LocalLauncher(std::move(options), std::move(listener)));
  launcher->inotify_ = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  launcher->epoll_ = epoll_create1(EPOLL_CLOEXEC);
  launcher->wake_ = eventfd(0, EFD_CLOEXEC);
  if (launcher->inotify_ < 0 || launcher->epoll_ < 0 || launcher->wake_ < 0)
    return SystemError("inotify or epoll");
  for (const int fd : {launcher->inotify_, launcher->wake_}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(launcher->epoll_, EPOLL_CTL_ADD, fd, &event) != 0) return SystemError("epoll");
  }
  launcher->thread_ = std::thread([raw = launcher.get()] { raw->Watch(); });
  return launcher;
}

LocalLauncher::LocalLauncher(LocalOptions options, LaunchListener listener)
    : options_(std::move(options)), listener_(std::move(listener)) {}

LocalLauncher::~LocalLauncher() {
  if (thread_.joinable()) {
    eventfd_write(wake_, 1);
    thread_.join();
  }
  for (const auto& [pidfd, gang] : gangs_) close(pidfd);
  for (const auto& [pidfd, rank] : stuck_) close(pidfd);
  for (const int fd : {inotify_, epoll_, wake_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status LocalLauncher::Start(const LaunchRequest& request) {
  if (absl::Status status = WriteLaunchFile(request, options_); !status.ok()) return status;
  // The file must exist before it can be watched.
  const std::string exits = request.folder + "/exits";
  const int exits_fd = open(exits.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (exits_fd < 0) return SystemError(exits);
  close(exits_fd);
  MutexLock lock(mutex_);  // the watching thread must not see the gang half made
  const int watch = inotify_add_watch(inotify_, exits.c_str(), IN_MODIFY);
  if (watch < 0) return SystemError(exits);
  // Ranks inherit the supervisor's environment: there are the secrets, and in no file.
  const absl::StatusOr<pid_t> pid =
      SpawnChild({.words = {options_.supervisor_program, "supervise", request.folder},
                  .log = request.folder + "/supervisor.log",
                  .append_to_log = true,
                  .environment = request.secrets});
  if (!pid.ok()) {
    inotify_rm_watch(inotify_, watch);
    return pid.status();
  }
  const int pidfd = PidfdOpen(*pid);
  epoll_event event{.events = EPOLLIN, .data = {.fd = pidfd}};
  if (pidfd < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, pidfd, &event) != 0) {
    const absl::Status status = SystemError("watching the supervisor");
    kill(*pid, SIGKILL);  // its ranks die with it
    waitpid(*pid, nullptr, 0);
    return status;
  }
  gangs_[pidfd] = {request.run, request.attempt, request.folder, request.token, *pid, pidfd, watch};
  return absl::OkStatus();
}

void LocalLauncher::Stop(int64_t run, int attempt) {
  MutexLock lock(mutex_);
  for (const auto& [pidfd, gang] : gangs_) {
    if (gang.run == run && gang.attempt == attempt) PidfdSignal(pidfd, SIGTERM);
  }
}

void LocalLauncher::Watch() {
  for (;;) {
    epoll_event ready[64];
    const int count = epoll_wait(epoll_, ready, 64, -1);
    if (count < 0 && errno != EINTR) return;
    for (int i = 0; i < count; ++i) {
      const int fd = ready[i].data.fd;
      if (fd == wake_) return;
      if (fd != inotify_) {
        if (stuck_.contains(fd)) {
          TellUnstuck(fd);
        } else {
          EndGang(fd);
        }
        continue;
      }
      alignas(inotify_event) char buffer[4096];
      std::vector<int> watches;
      for (ssize_t n = read(inotify_, buffer, sizeof(buffer)); n > 0;
           n = read(inotify_, buffer, sizeof(buffer))) {
        for (ssize_t at = 0; at < n;) {
          inotify_event event;
          std::memcpy(&event, buffer + at, sizeof(event));
          watches.push_back(event.wd);
          at += static_cast<ssize_t>(sizeof(event) + event.len);
        }
      }
      for (const int watch : watches) {
        if (Gang* gang = FindGang(watch); gang != nullptr) ReadExits(*gang);
      }
    }
  }
}

// Only this thread erases gangs, so what it finds stays.
LocalLauncher::Gang* LocalLauncher::FindGang(int watch) {
  MutexLock lock(mutex_);
  for (auto& [pidfd, gang] : gangs_) {
    if (gang.watch == watch) return &gang;
  }
  return nullptr;
}

// Tells every complete line of FOLDER/exits that was not told yet.
void LocalLauncher::ReadExits(Gang& gang) {
  std::ifstream file(gang.folder + "/exits", std::ios::binary);
  file.seekg(static_cast<std::streamoff>(gang.exits_read));
  std::string line;
  while (std::getline(file, line) && !file.eof()) {
    gang.exits_read += line.size() + 1;
    std::istringstream words(line);
    std::string what;
    int rank = 0;
    words >> what >> rank;
    if (what == "start") {
      int64_t pid = 0;
      words >> pid;
      listener_.spawned(gang.run, gang.attempt, rank, pid);
    } else if (what == "exit") {
      RankExit exit;
      exit.rank = rank;
      int killed = 0;
      words >> exit.wait_status >> killed >> exit.oom_kills;
      exit.killed = killed != 0;
      if (exit.wait_status != 0)
        exit.last_lines = LastLines(absl::StrCat(gang.folder, "/rank_", rank, ".log"), kLastLines);
      listener_.exited(gang.run, gang.attempt, std::move(exit));
    } else if (what == "stuck") {
      std::string identity;
      std::getline(words >> std::ws, identity);
      listener_.stuck(gang.run, gang.attempt, rank, std::atoi(identity.c_str()));
      gang.stuck[rank] = std::move(identity);
    }
  }
}

void LocalLauncher::EndGang(int pidfd) {
  Gang* gang = nullptr;
  {
    MutexLock lock(mutex_);
    const auto found = gangs_.find(pidfd);
    if (found == gangs_.end()) return;
    gang = &found->second;
  }
  int status = 0;
  waitpid(gang->supervisor, &status, 0);
  ReadExits(*gang);
  // It ends everything itself before it exits; killed, it takes its ranks with it, but not what
  // they started.
  if (status != 0) {
    EndMarkedProcesses(TokenMark(gang->token));
    EndGroups(gang->folder);
  }
  WatchStuckRanks(*gang);
  const int64_t run = gang->run;
  const int attempt = gang->attempt;
  inotify_rm_watch(inotify_, gang->watch);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, pidfd, nullptr);
  {
    MutexLock lock(mutex_);
    gangs_.erase(pidfd);
  }
  close(pidfd);
  listener_.gone(run, attempt);
}

// A stuck rank outlives its gang; its end, whenever that is, makes its slot usable again.
void LocalLauncher::WatchStuckRanks(const Gang& gang) {
  for (const auto& [rank, identity] : gang.stuck) {
    const pid_t pid = std::atoi(identity.c_str());
    const int pidfd = PidfdOpen(pid);
    epoll_event event{.events = EPOLLIN, .data = {.fd = pidfd}};
    if (pidfd >= 0 && ProcessIdentity(pid) == identity &&
        epoll_ctl(epoll_, EPOLL_CTL_ADD, pidfd, &event) == 0) {
      stuck_[pidfd] = {gang.run, gang.attempt, rank};
      continue;
    }
    if (pidfd >= 0) close(pidfd);  // it has ended meanwhile
    listener_.unstuck(gang.run, gang.attempt, rank);
  }
}

void LocalLauncher::TellUnstuck(int pidfd) {
  const StuckRank rank = stuck_.at(pidfd);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, pidfd, nullptr);
  stuck_.erase(pidfd);
  close(pidfd);
  listener_.unstuck(rank.run, rank.attempt, rank.rank);
}

absl::Status LocalLauncher::EndLeftover(const std::string& folder, int seconds) {
  std::ifstream file(folder + "/supervisor");
  std::string identity;
  std::getline(file, identity);
  const pid_t pid = std::atoi(identity.c_str());
  const int pidfd = pid > 0 ? PidfdOpen(pid) : -1;
  absl::Status status;
  if (pidfd >= 0 && ProcessIdentity(pid) == identity) {
    PidfdSignal(pidfd, SIGTERM);
    pollfd wait{pidfd, POLLIN, 0};
    if (poll(&wait, 1, seconds * 1000) != 1) {
      status = absl::DeadlineExceededError(
          absl::StrCat("supervisor ", pid, " of ", folder, " did not end within ", seconds, " s"));
    }
  }
  if (pidfd >= 0) close(pidfd);
  const std::string token = StoredToken(folder);
  if (!token.empty()) EndMarkedProcesses(TokenMark(token));
  EndGroups(folder);
  return status;
}

}  // namespace regatta
