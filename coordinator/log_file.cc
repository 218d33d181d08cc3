#include "coordinator/log_file.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace regatta {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;

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

}  // namespace

absl::StatusOr<LogChunk> ReadLogChunk(const std::string& state_folder, int64_t run, int attempt,
                                      int rank, int64_t offset) {
  const std::string folder = absl::StrCat(state_folder, "/runs/", run);
  if (attempt == 0) attempt = LatestAttempt(folder);
  if (attempt == 0)
    return absl::NotFoundError(
        absl::StrCat("run ", run, " has no log: no attempt of it has started"));
  const std::string path = absl::StrCat(folder, "/attempt_", attempt, "/rank_", rank, ".log");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file)
    return absl::NotFoundError(
        absl::StrCat("run ", run, " has no log of rank ", rank, ", attempt ", attempt));
  LogChunk chunk;
  chunk.size = static_cast<int64_t>(file.tellg());
  const int64_t from =
      std::clamp<int64_t>(offset < 0 ? chunk.size + offset : offset, 0, chunk.size);
  chunk.data.resize(static_cast<size_t>(std::min(kChunkBytes, chunk.size - from)));
  file.seekg(from);
  file.read(chunk.data.data(), static_cast<std::streamsize>(chunk.data.size()));
  chunk.data.resize(static_cast<size_t>(file.gcount()));
  chunk.next_offset = from + static_cast<int64_t>(chunk.data.size());
  return chunk;
}

}  // namespace regatta
