#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/cli/experiment_file.h"
#include "coordinator/log_file.h"
#include "coordinator/store/reader.h"

namespace regatta {

// What the client reads from and writes to: a daemon, or the state folder alone.
class Session {
 public:
  // Talks to the daemon of the state folder. UNAVAILABLE where none runs.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Session>> Connect(
      const std::string& state_folder);
  // Through the daemon where one runs, else straight from the folder's database: enough for
  // reading.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Session>> ConnectOrRead(
      const std::string& state_folder);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  struct Ids {
    int64_t experiment = 0;
    std::vector<int64_t> runs;
    std::vector<std::string> warnings;
  };
  // Submits once. INVALID_ARGUMENT is the file's fault.
  [[nodiscard]] absl::StatusOr<Ids> Submit(const ExperimentFile& file);
  // How many runs this call asked to end, and how many had ended already.
  [[nodiscard]] absl::StatusOr<std::pair<int64_t, int64_t>> Cancel(
      const std::vector<int64_t>& runs, const std::vector<int64_t>& experiments);
  // Waits for the first commit after `after`, or the time; returns the newest commit.
  [[nodiscard]] absl::StatusOr<int64_t> Await(int64_t after, int64_t timeout_ms);

  [[nodiscard]] absl::StatusOr<Table> Query(const std::string& sql,
                                            const std::vector<std::string>& parameters = {});
  [[nodiscard]] absl::StatusOr<LogChunk> ReadLog(const LogPlace& place);
  [[nodiscard]] bool HasDaemon() const;

 private:
  struct Body;
  explicit Session(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

// A coordinator of this process alone, for `regatta run`. Ends with this object, or with this
// process.
class PrivateDaemon {
 public:
  struct Options {
    std::string state_folder;
    std::vector<std::string> arguments;  // further ones of regattad
  };
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<PrivateDaemon>> Start(const Options& options);
  ~PrivateDaemon();
  PrivateDaemon(const PrivateDaemon&) = delete;
  PrivateDaemon& operator=(const PrivateDaemon&) = delete;

  [[nodiscard]] const std::string& StatusPage() const { return page_; }

 private:
  PrivateDaemon(pid_t pid, std::string page) : pid_(pid), page_(std::move(page)) {}
  const pid_t pid_;
  const std::string page_;
};

}  // namespace regatta
