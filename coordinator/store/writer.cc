#include "coordinator/store/writer.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <absl/strings/str_cat.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "coordinator/store/schema.h"

namespace regatta {
struct Writer::Body {
  explicit Body(const std::string& file)
      : database(file, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE | SQLite::OPEN_NOMUTEX, 10000) {
  }

  void Loop() {
    for (;;) {
      std::vector<Change> changes;
      int64_t last = 0;
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return stopping || !waiting.empty(); });
        if (waiting.empty()) return;
        for (auto& [batch, batch_changes] : waiting) {
          last = batch;
          changes.insert(changes.end(), std::make_move_iterator(batch_changes.begin()),
                         std::make_move_iterator(batch_changes.end()));
        }
        waiting.clear();
      }
      answer(last, Commit(changes));
    }
  }

  absl::Status Commit(const std::vector<Change>& changes) {
    // After one lost transaction a later one would tell half a story.
    if (!failed.ok()) return failed;
    try {
      SQLite::Transaction transaction(database);
      Apply(database, changes);
      transaction.commit();
    } catch (const SQLite::Exception& e) {
      failed = absl::DataLossError(
          absl::StrCat("writing ", database.getFilename(), " failed: ", e.what()));
    }
    return failed;
  }

  SQLite::Database database;
  Answer answer;
  absl::Status failed;  // writer's thread only
  std::mutex mutex;     // guards waiting and stopping
  std::condition_variable wake;
  std::vector<std::pair<int64_t, std::vector<Change>>> waiting;
  bool stopping = false;
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<Writer>> Writer::Open(const std::string& state_folder) {
  const std::string file = state_folder + "/regatta.db";
  try {
    auto body = std::make_unique<Body>(file);
    // First: a database that is refused stays as it is.
    if (absl::Status status = Migrate(body->database); !status.ok()) return status;
    body->database.exec("pragma journal_mode = wal");
    body->database.exec("pragma synchronous = full");
    body->database.exec("pragma foreign_keys = on");
    body->database.exec("pragma cache_size = -65536");  // KiB: 100,000 new runs spill no page twice
    return std::unique_ptr<Writer>(new Writer(std::move(body)));
  } catch (const SQLite::Exception& e) {
    return absl::FailedPreconditionError(absl::StrCat("database ", file, ": ", e.what()));
  }
}

Writer::Writer(std::unique_ptr<Body> body) : body_(std::move(body)) {}

Writer::~Writer() {
  {
    std::lock_guard lock(body_->mutex);
    body_->stopping = true;
  }
  body_->wake.notify_one();
  if (body_->thread.joinable()) body_->thread.join();
}

void Writer::Start(Answer answer) {
  body_->answer = std::move(answer);
  body_->thread = std::thread([this] { body_->Loop(); });
}

void Writer::Submit(int64_t batch, std::vector<Change> changes) {
  {
    std::lock_guard lock(body_->mutex);
    body_->waiting.emplace_back(batch, std::move(changes));
  }
  body_->wake.notify_one();
}

}  // namespace regatta
