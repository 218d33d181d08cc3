#include "coordinator/preparation.h"

#include <absl/strings/str_cat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <filesystem>
#include <thread>

#include "coordinator/launcher/child.h"
#include "coordinator/mutex.h"

#ifndef REGATTA_SOURCE_FOLDER
#error "the build must say where scripts/prepare is"
#endif

namespace regatta {
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
      const absl::StatusOr<pid_t> spawned = SpawnChild({.words = *std::move(words), .log = log});
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
    const std::string last = LastLines(log, 1);
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
