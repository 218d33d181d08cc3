#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/store/changes.h"

namespace regatta {

// Where the loop sends what it decided. The answer comes back as an event, in order of submission.
class ChangeSink {
 public:
  virtual ~ChangeSink() = default;
  // `batch` names the changes in the answer. Never blocks.
  virtual void Submit(int64_t batch, std::vector<Change> changes) = 0;
};

// The one writer of a state folder's database: a thread that commits as many waiting batches as
// there are in one transaction (WAL, synchronous=FULL), then says so.
class Writer : public ChangeSink {
 public:
  // Called on the writer's thread: every batch up to `batch` is on disk, or none after the last
  // good one will be.
  using Answer = std::function<void(int64_t batch, const absl::Status& status)>;

  // Opens or makes STATE_FOLDER/regatta.db. A folder on a network file system is refused.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Writer>> Open(
      const std::string& state_folder);

  ~Writer() override;  // commits what waits
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void Start(Answer answer);
  void Submit(int64_t batch, std::vector<Change> changes) override;

 private:
  struct Body;
  explicit Writer(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace regatta
