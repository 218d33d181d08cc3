#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "worker/client/run_spec.h"

namespace regatta {

// Which rank this process is, and where its coordinator listens.
struct RankIdentity {
  std::string address;
  int64_t run = 0;
  int attempt = 0;
  int rank = 0;
  std::string token;
};

// From the environment that the launcher sets (REGATTA_COORDINATOR, REGATTA_RUN, REGATTA_ATTEMPT,
// REGATTA_TOKEN, RANK). Throws std::runtime_error naming the variable.
[[nodiscard]] RankIdentity ReadRankIdentity();

// A call to the coordinator did not go well.
class CoordinatorError : public std::runtime_error {
 public:
  enum class Kind { kRefused, kTimeout, kUnreachable, kOther };
  CoordinatorError(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  [[nodiscard]] Kind GetKind() const { return kind_; }

 private:
  Kind kind_;
};

struct StepRecord {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;
};

struct RankResult {
  bool ok = false;
  std::string sentence;  // why not
  int exit_code = 0;     // what the process is about to exit with
  std::vector<std::pair<std::string, double>> values;
  std::vector<std::pair<std::string, std::string>> facts;
};

// A rank's calls to its coordinator; also the rendezvous store (strings are bytes). Thread-safe,
// holds no lock across a call. Every method throws CoordinatorError.
class CoordinatorClient {
 public:
  using Keys = std::vector<std::string>;
  using Facts = std::vector<std::pair<std::string, std::string>>;

  explicit CoordinatorClient(RankIdentity identity);
  ~CoordinatorClient();
  CoordinatorClient(const CoordinatorClient&) = delete;
  CoordinatorClient& operator=(const CoordinatorClient&) = delete;

  [[nodiscard]] const RankIdentity& Identity() const { return identity_; }

  // Returns when all ranks of the attempt have joined.
  [[nodiscard]] RunSpec Join(const Facts& facts);
  void Report(const std::vector<StepRecord>& steps, int64_t planned_steps,
              const std::vector<TraceFile>& traces = {});
  // Returns when the result is on the coordinator's disk.
  void Finish(const RankResult& result);

  void Set(const Keys& keys, const std::vector<std::string>& values);
  // Waits until all keys exist, at most the time.
  [[nodiscard]] std::vector<std::string> Get(const Keys& keys, int64_t timeout_ms);
  void Wait(const Keys& keys, int64_t timeout_ms);
  int64_t Add(const std::string& key, int64_t amount);
  std::string CompareSet(const std::string& key, const std::string& expected,
                         const std::string& desired);
  void Append(const std::string& key, const std::string& value);
  bool Delete(const std::string& key);
  [[nodiscard]] bool Check(const Keys& keys);
  [[nodiscard]] Keys ListKeys();

  // Store calls made so far, of all kinds.
  [[nodiscard]] int64_t StoreCalls() const;

 private:
  struct Body;
  const RankIdentity identity_;
  const std::unique_ptr<Body> body_;
};

}  // namespace regatta
