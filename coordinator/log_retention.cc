#include "coordinator/log_retention.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "coordinator/clock.h"
#include "coordinator/log_file.h"

namespace regatta {
namespace {

namespace fs = std::filesystem;

constexpr auto kPeriod = std::chrono::minutes(10);

// "attempt_3" with the prefix "attempt_" is 3; 0 for other names.
int64_t NumberAfter(const fs::path& path, std::string_view prefix) {
  const std::string name = path.filename().string();
  int64_t number = 0;
  const bool right =
      name.starts_with(prefix) && absl::SimpleAtoi(name.substr(prefix.size()), &number);
  return right ? number : 0;
}

bool IsLog(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.starts_with("rank_") || name == "supervisor.log";
}

// The supervisor writes FOLDER/exits last.
KeptLogs LookAt(const fs::path& folder) {
  KeptLogs logs{folder.string(), 0, 0};
  struct stat info {};
  if (stat((folder / "exits").c_str(), &info) == 0) {
    logs.ended_us = info.st_mtim.tv_sec * 1000000 + info.st_mtim.tv_nsec / 1000;
  }
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder, error)) {
    if (IsLog(file.path())) logs.bytes += static_cast<int64_t>(file.file_size(error));
  }
  return logs;
}

std::vector<KeptLogs> FindEndedLogs(const std::string& state_folder,
                                    const std::function<bool(AttemptKey)>& is_live) {
  std::vector<KeptLogs> kept;
  std::error_code error;
  for (const auto& run : fs::directory_iterator(state_folder + "/runs", error)) {
    for (const auto& attempt : fs::directory_iterator(run.path(), error)) {
      const AttemptKey key{NumberAfter(run.path(), ""),
                           static_cast<int>(NumberAfter(attempt.path(), "attempt_"))};
      if (key.run == 0 || key.attempt == 0 || is_live(key)) continue;
      KeptLogs logs = LookAt(attempt.path());
      if (logs.bytes > 0) kept.push_back(std::move(logs));
    }
  }
  return kept;
}

// The note comes first: a reader in between finds one or the other.
void Remove(const KeptLogs& logs) {
  std::ofstream(logs.folder + "/" + kRemovedNote) << SystemUnixMicros() << "\n";
  std::error_code error;
  for (const auto& file : fs::directory_iterator(logs.folder, error)) {
    if (IsLog(file.path())) fs::remove(file.path(), error);
  }
}

}  // namespace

std::vector<KeptLogs> ChooseExpired(std::vector<KeptLogs> kept, const RetentionLimits& limits,
                                    int64_t now_us) {
  std::sort(kept.begin(), kept.end(),
            [](const KeptLogs& a, const KeptLogs& b) { return a.ended_us > b.ended_us; });
  int64_t bytes = 0;
  const auto expired = std::find_if(kept.begin(), kept.end(), [&](const KeptLogs& logs) {
    bytes += logs.bytes;
    const double age = static_cast<double>(now_us - logs.ended_us) / 1e6;
    return (limits.max_age_seconds > 0 && age > limits.max_age_seconds) ||
           (limits.max_bytes > 0 && bytes > limits.max_bytes);
  });
  return {expired, kept.end()};  // newest first: whatever is older than an expired one goes too
}

int64_t RemoveExpiredLogs(const std::string& state_folder, const RetentionLimits& limits,
                          const std::function<bool(AttemptKey)>& is_live) {
  int64_t removed = 0;
  for (const KeptLogs& logs :
       ChooseExpired(FindEndedLogs(state_folder, is_live), limits, SystemUnixMicros())) {
    Remove(logs);
    removed += logs.bytes;
  }
  return removed;
}

LogRetention::LogRetention(std::string state_folder, RetentionLimits limits,
                           std::function<bool(AttemptKey)> is_live) {
  if (limits.max_age_seconds <= 0 && limits.max_bytes <= 0) return;
  thread_ =
      std::thread([this, folder = std::move(state_folder), limits, is_live = std::move(is_live)] {
        std::unique_lock lock(mutex_);
        while (!ending_) {
          lock.unlock();
          RemoveExpiredLogs(folder, limits, is_live);
          lock.lock();
          wake_.wait_for(lock, kPeriod, [this] { return ending_; });
        }
      });
}

LogRetention::~LogRetention() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace regatta
