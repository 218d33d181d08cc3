#include "coordinator/log_file.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace regatta {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;
constexpr int64_t kLongestLine = 1 << 16;  // a longer one is cut

// The largest N of the entries named PREFIX<N> below `folder`; 0 where there is none.
int LatestAttempt(const std::string& folder) {
  int latest = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kPrefix = "attempt_";
    int number = 0;
    if (name.starts_with(kPrefix) && absl::SimpleAtoi(name.substr(kPrefix.size()), &number)) {
      latest = std::max(latest, number);
    }
  }
  return latest;
}

// What to say of an attempt that has no such log.
absl::Status Missing(const std::string& attempt_folder, const LogPlace& place, int attempt) {
  std::ifstream note(attempt_folder + "/" + kRemovedNote);
  if (int64_t removed_us = 0; note >> removed_us) {
    return absl::NotFoundError(
        absl::StrCat("the logs of run ", place.run, ", attempt ", attempt, " were removed on ",
                     absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromUnixMicros(removed_us),
                                      absl::UTCTimeZone()),
                     ", as regattad's --keep-logs or --keep-log-bytes says"));
  }
  return absl::NotFoundError(
      absl::StrCat("run ", place.run, " has no log of rank ", place.rank, ", attempt ", attempt));
}

// How long the log was at that time, as the supervisor noted it; back to the start of that line.
int64_t OffsetSince(const std::string& path, std::ifstream& log, int64_t since_us) {
  std::ifstream times(path + ".times");
  int64_t offset = 0;
  int64_t at_us = 0;
  int64_t bytes = 0;
  while (times >> at_us >> bytes && at_us <= since_us) offset = bytes;
  const int64_t from = std::max<int64_t>(0, offset - kLongestLine);
  std::string before(static_cast<size_t>(offset - from), '\0');
  log.seekg(from);
  log.read(before.data(), static_cast<std::streamsize>(before.size()));
  const size_t end_of_line = before.rfind('\n');
  return end_of_line == std::string::npos ? from : from + static_cast<int64_t>(end_of_line) + 1;
}

}  // namespace

absl::StatusOr<LogChunk> ReadLogChunk(const std::string& state_folder, const LogPlace& place) {
  const std::string folder = absl::StrCat(state_folder, "/runs/", place.run);
  const int attempt = place.attempt == 0 ? LatestAttempt(folder) : place.attempt;
  if (attempt == 0)
    return absl::NotFoundError(
        absl::StrCat("run ", place.run, " has no log: no attempt of it has started"));
  const std::string attempt_folder = absl::StrCat(folder, "/attempt_", attempt);
  const std::string path = absl::StrCat(attempt_folder, "/rank_", place.rank, ".log");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Missing(attempt_folder, place, attempt);
  LogChunk chunk;
  chunk.size = static_cast<int64_t>(file.tellg());
  int64_t from = place.offset < 0 ? chunk.size + place.offset : place.offset;
  if (place.since_us != 0) from = OffsetSince(path, file, place.since_us);
  from = std::clamp<int64_t>(from, 0, chunk.size);
  chunk.data.resize(static_cast<size_t>(std::min(kChunkBytes, chunk.size - from)));
  file.seekg(from);
  file.read(chunk.data.data(), static_cast<std::streamsize>(chunk.data.size()));
  chunk.data.resize(static_cast<size_t>(file.gcount()));
  chunk.next_offset = from + static_cast<int64_t>(chunk.data.size());
  return chunk;
}

}  // namespace regatta
