#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/mutex.h"
#include "coordinator/run.h"

namespace regatta {

// Who calls: every call of a rank carries it.
struct RankCaller {
  AttemptKey key;
  int rank = 0;
  std::string token;
};

// Where the ranks of an attempt meet: a server-side all-gather (Join) and a key-value store with
// waiting reads, in memory, one scope an attempt. Thread-safe; callbacks run on the calling thread,
// never under the lock. Calls of a stale attempt, a wrong token or an unknown rank are
// FAILED_PRECONDITION.
class Rendezvous {
 public:
  using Values = std::vector<std::string>;
  // Called once: the values in key order, or why not.
  using GotValues = std::function<void(absl::StatusOr<Values>)>;
  using Joined = std::function<void(absl::Status)>;

  // `all_joined` is called when the last rank of an attempt joins, before any of its ranks is told.
  explicit Rendezvous(std::function<void(AttemptKey)> all_joined)
      : all_joined_(std::move(all_joined)) {}

  void Open(AttemptKey key, int ranks, std::string token);
  // Ends the attempt's scope: waiting calls are answered ABORTED with `why`, later ones are stale.
  void Close(AttemptKey key, const std::string& why);

  [[nodiscard]] absl::Status Check(const RankCaller& caller);
  // `done` is called when the last rank joins.
  [[nodiscard]] absl::Status Join(const RankCaller& caller, Joined done);
  [[nodiscard]] std::vector<int> MissingRanks(AttemptKey key);

  [[nodiscard]] absl::Status Set(const RankCaller& caller, const Values& keys,
                                 const Values& values);
  // Answers at once where all keys exist, else when they do. The number names a waiting call for
  // Expire; 0: answered.
  [[nodiscard]] absl::StatusOr<uint64_t> Get(const RankCaller& caller, Values keys, GotValues done);
  // Ends a waiting Get with DEADLINE_EXCEEDED naming the first missing key, the waiting rank and
  // the ranks that have not joined. Harmless when it was answered.
  void Expire(uint64_t waiting);
  [[nodiscard]] absl::StatusOr<int64_t> Add(const RankCaller& caller, const std::string& key,
                                            int64_t amount);
  // Sets where the stored value equals `expected`, or where the key is absent and `expected` empty.
  // Returns what is stored afterwards; `expected` where the key is absent (c10d::Store's contract).
  [[nodiscard]] absl::StatusOr<std::string> CompareSet(const RankCaller& caller,
                                                       const std::string& key,
                                                       const std::string& expected,
                                                       const std::string& desired);
  [[nodiscard]] absl::Status Append(const RankCaller& caller, const std::string& key,
                                    const std::string& value);
  [[nodiscard]] absl::StatusOr<bool> Delete(const RankCaller& caller, const std::string& key);
  [[nodiscard]] absl::StatusOr<bool> HasAll(const RankCaller& caller, const Values& keys);
  [[nodiscard]] absl::StatusOr<Values> ListKeys(const RankCaller& caller);

 private:
  struct Waiting {
    uint64_t number;
    int rank;
    Values keys;
    GotValues done;
  };
  struct Scope {
    std::string token;
    std::vector<bool> joined;
    std::vector<Joined> join_waiters;
    std::map<std::string, std::string> values;
    std::list<Waiting> waiting;
  };
  // What to call once the lock is released.
  using Calls = std::vector<std::function<void()>>;

  absl::StatusOr<Scope*> FindScope(const RankCaller& caller) REGATTA_REQUIRES(mutex_);
  static bool AllExist(const Scope& scope, const Values& keys);
  static void Wake(Scope& scope, Calls& calls);
  static std::string DescribeMissing(const Scope& scope, const Waiting& waiting);
  template <typename Mutate>
  absl::Status Change(const RankCaller& caller, const Mutate& mutate);

  const std::function<void(AttemptKey)> all_joined_;
  Mutex mutex_;
  std::map<AttemptKey, Scope> scopes_ REGATTA_GUARDED_BY(mutex_);
  uint64_t last_number_ REGATTA_GUARDED_BY(mutex_) = 0;
};

}  // namespace regatta
