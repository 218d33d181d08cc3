#include "coordinator/preparation.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <thread>

#include "coordinator/mutex.h"

#ifndef REGATTA_SOURCE_FOLDER
#error "the build must say where scripts/prepare is"
#endif

extern char** environ;

namespace regatta {
namespace {

std::string LastLine(const std::string& file_name) {
  std::ifstream file(file_name);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

// Its own process group, so that ending it ends what it started.
absl::StatusOr<pid_t> Spawn(std::vector<std::string> words, const std::string& log) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return pid;
  return absl::InternalError(absl::StrCat("cannot start ", words[0], ": ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> PrepareCommand(const std::string& material_folder) {
  const std::string source = REGATTA_SOURCE_FOLDER;
  const std::string python = source + "/.venv/bin/python";
  if (!std::filesystem::exists(python)) {
    return absl::FailedPreconditionError(absl::StrCat(
        python, " is missing; install the preparation's packages: ", source, "/scripts/setup.sh"));
  }
  return std::vector<std::string>{python, source + "/scripts/prepare", "--to", material_folder};
}

struct ProcessPreparer::Body {
  std::string state_folder;
  std::string material_folder;
  Ended ended;
  Mutex mutex;
  std::condition_variable_any wake;
  std::deque<std::string> waiting REGATTA_GUARDED_BY(mutex);
  pid_t running REGATTA_GUARDED_BY(mutex) = 0;
  bool stopping REGATTA_GUARDED_BY(mutex) = false;
  std::thread thread;

  absl::Status Prepare(const std::string& word) {
    absl::StatusOr<std::vector<std::string>> words = PrepareCommand(material_folder);
    if (!words.ok()) return words.status();
    words->push_back(word);
    const std::string log = state_folder + "/preparation.log";
    pid_t pid = 0;
    {
      MutexLock lock(mutex);
      if (stopping) return absl::CancelledError("the coordinator is stopping");
      const absl::StatusOr<pid_t> spawned = Spawn(*std::move(words), log);
      if (!spawned.ok()) return spawned.status();
      running = pid = *spawned;
    }
    // Waited for without reaping it, so that `running` is never another process's id.
    siginfo_t info;
    while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    int status = 0;
    {
      MutexLock lock(mutex);
      running = 0;
      waitpid(pid, &status, 0);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
    const std::string last = LastLine(log);
    return absl::FailedPreconditionError(
        last.empty() ? absl::StrCat("regatta prepare ", word, " ended with wait status ", status)
                     : last);
  }

  void Loop() {
    for (;;) {
      std::string word;
      {
        MutexLock lock(mutex);
        while (waiting.empty() && !stopping) wake.wait(mutex);
        if (stopping) return;
        word = std::move(waiting.front());
        waiting.pop_front();
      }
      ended(word, Prepare(word));
    }
  }
};

ProcessPreparer::ProcessPreparer(std::string state_folder, std::string material_folder, Ended ended)
    : body_(std::make_unique<Body>()) {
  body_->state_folder = std::move(state_folder);
  body_->material_folder = std::move(material_folder);
  body_->ended = std::move(ended);
  body_->thread = std::thread([body = body_.get()] { body->Loop(); });
}

ProcessPreparer::~ProcessPreparer() {
  {
    MutexLock lock(body_->mutex);
    body_->stopping = true;
    if (body_->running != 0) kill(-body_->running, SIGTERM);
  }
  body_->wake.notify_all();
  body_->thread.join();
}

void ProcessPreparer::Start(const std::string& word) {
  {
    MutexLock lock(body_->mutex);
    body_->waiting.push_back(word);
  }
  body_->wake.notify_all();
}

}  // namespace regatta
