#include "coordinator/rendezvous.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <utility>

namespace regatta {
namespace {

std::vector<int> RanksNotJoined(const std::vector<bool>& joined) {
  std::vector<int> missing;
  for (size_t rank = 0; rank < joined.size(); ++rank) {
    if (!joined[rank]) missing.push_back(static_cast<int>(rank));
  }
  return missing;
}

}  // namespace

void Rendezvous::Open(AttemptKey key, int ranks, std::string token) {
  MutexLock lock(mutex_);
  Scope& scope = scopes_[key];
  scope.token = std::move(token);
  scope.joined.assign(static_cast<size_t>(ranks), false);
}

void Rendezvous::Close(AttemptKey key, const std::string& why) {
  Scope scope;
  {
    MutexLock lock(mutex_);
    const auto found = scopes_.find(key);
    if (found == scopes_.end()) return;
    scope = std::move(found->second);
    scopes_.erase(found);
  }
  const absl::Status status = absl::AbortedError(why);
  for (const Joined& done : scope.join_waiters) done(status);
  for (const Waiting& waiting : scope.waiting) waiting.done(status);
}

absl::StatusOr<Rendezvous::Scope*> Rendezvous::FindScope(const RankCaller& caller) {
  const auto found = scopes_.find(caller.key);
  if (found == scopes_.end()) {
    return absl::FailedPreconditionError(absl::StrCat("attempt ", caller.key.attempt, " of run ",
                                                      caller.key.run, " is over or unknown here"));
  }
  Scope& scope = found->second;
  if (scope.token != caller.token) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", caller.rank, " of run ",
                                                      caller.key.run,
                                                      " shows a token that is not this attempt's"));
  }
  if (caller.rank < 0 || caller.rank >= static_cast<int>(scope.joined.size())) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", caller.rank, " is outside the ",
                                                      scope.joined.size(), " ranks of run ",
                                                      caller.key.run));
  }
  return &scope;
}

absl::Status Rendezvous::Check(const RankCaller& caller) {
  MutexLock lock(mutex_);
  return FindScope(caller).status();
}

absl::Status Rendezvous::Join(const RankCaller& caller, Joined done) {
  std::vector<Joined> all;
  {
    MutexLock lock(mutex_);
    const absl::StatusOr<Scope*> scope = FindScope(caller);
    if (!scope.ok()) return scope.status();
    const auto rank = static_cast<size_t>(caller.rank);
    if ((*scope)->joined[rank]) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", caller.rank, " of run ", caller.key.run, " has joined already"));
    }
    (*scope)->joined[rank] = true;
    (*scope)->join_waiters.push_back(std::move(done));
    if (!RanksNotJoined((*scope)->joined).empty()) return absl::OkStatus();
    all = std::exchange((*scope)->join_waiters, {});
  }
  all_joined_(caller.key);
  for (const Joined& waiter : all) waiter(absl::OkStatus());
  return absl::OkStatus();
}

std::vector<int> Rendezvous::MissingRanks(AttemptKey key) {
  MutexLock lock(mutex_);
  const auto found = scopes_.find(key);
  return found == scopes_.end() ? std::vector<int>() : RanksNotJoined(found->second.joined);
}

bool Rendezvous::AllExist(const Scope& scope, const Values& keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [&](const std::string& key) { return scope.values.contains(key); });
}

void Rendezvous::Wake(Scope& scope, Calls& calls) {
  for (auto waiting = scope.waiting.begin(); waiting != scope.waiting.end();) {
    if (!AllExist(scope, waiting->keys)) {
      ++waiting;
      continue;
    }
    Values values;
    for (const std::string& key : waiting->keys) values.push_back(scope.values[key]);
    calls.push_back([done = std::move(waiting->done), values = std::move(values)]() mutable {
      done(std::move(values));
    });
    waiting = scope.waiting.erase(waiting);
  }
}

// Runs `mutate` on the caller's scope under the lock, then answers the reads that it completed.
template <typename Mutate>
absl::Status Rendezvous::Change(const RankCaller& caller, const Mutate& mutate) {
  Calls calls;
  {
    MutexLock lock(mutex_);
    const absl::StatusOr<Scope*> scope = FindScope(caller);
    if (!scope.ok()) return scope.status();
    if (absl::Status status = mutate(**scope); !status.ok()) return status;
    Wake(**scope, calls);
  }
  for (const auto& call : calls) call();
  return absl::OkStatus();
}

absl::Status Rendezvous::Set(const RankCaller& caller, const Values& keys, const Values& values) {
  if (keys.size() != values.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(keys.size(), " keys and ", values.size(), " values to set"));
  }
  return Change(caller, [&](Scope& scope) {
    for (size_t i = 0; i < keys.size(); ++i) scope.values[keys[i]] = values[i];
    return absl::OkStatus();
  });
}

absl::StatusOr<uint64_t> Rendezvous::Get(const RankCaller& caller, Values keys, GotValues done) {
  Values values;
  {
    MutexLock lock(mutex_);
    const absl::StatusOr<Scope*> scope = FindScope(caller);
    if (!scope.ok()) return scope.status();
    if (!AllExist(**scope, keys)) {
      (*scope)->waiting.push_back({++last_number_, caller.rank, std::move(keys), std::move(done)});
      return last_number_;
    }
    for (const std::string& key : keys) values.push_back((*scope)->values[key]);
  }
  done(std::move(values));
  return 0;
}

void Rendezvous::Expire(uint64_t number) {
  GotValues done;
  std::string sentence;
  {
    MutexLock lock(mutex_);
    for (auto& entry : scopes_) {
      Scope& scope = entry.second;
      const auto waiting =
          std::find_if(scope.waiting.begin(), scope.waiting.end(),
                       [&](const Waiting& candidate) { return candidate.number == number; });
      if (waiting == scope.waiting.end()) continue;
      sentence = DescribeMissing(scope, *waiting);
      done = std::move(waiting->done);
      scope.waiting.erase(waiting);
      break;
    }
  }
  if (done) done(absl::DeadlineExceededError(sentence));
}

std::string Rendezvous::DescribeMissing(const Scope& scope, const Waiting& waiting) {
  const auto absent =
      std::find_if(waiting.keys.begin(), waiting.keys.end(),
                   [&](const std::string& key) { return !scope.values.contains(key); });
  const std::vector<int> missing = RanksNotJoined(scope.joined);
  return absl::StrCat("rank ", waiting.rank, " waited too long for key '", *absent, "'; ",
                      missing.empty()
                          ? "all ranks have joined"
                          : absl::StrCat("not joined: rank ", absl::StrJoin(missing, ", ")));
}

absl::StatusOr<int64_t> Rendezvous::Add(const RankCaller& caller, const std::string& key,
                                        int64_t amount) {
  int64_t sum = 0;
  absl::Status status = Change(caller, [&](Scope& scope) {
    std::string& value = scope.values[key];
    int64_t before = 0;
    if (!value.empty() && !absl::SimpleAtoi(value, &before)) {
      return absl::InvalidArgumentError(absl::StrCat("key '", key, "' holds no number to add to"));
    }
    sum = before + amount;
    value = std::to_string(sum);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return sum;
}

absl::StatusOr<std::string> Rendezvous::CompareSet(const RankCaller& caller, const std::string& key,
                                                   const std::string& expected,
                                                   const std::string& desired) {
  std::string stored;
  absl::Status status = Change(caller, [&](Scope& scope) {
    const auto found = scope.values.find(key);
    if (found == scope.values.end()) {
      if (expected.empty()) scope.values[key] = desired;
      stored = expected.empty() ? desired : expected;
    } else {
      if (found->second == expected) found->second = desired;
      stored = found->second;
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return stored;
}

absl::Status Rendezvous::Append(const RankCaller& caller, const std::string& key,
                                const std::string& value) {
  return Change(caller, [&](Scope& scope) {
    scope.values[key] += value;
    return absl::OkStatus();
  });
}

absl::StatusOr<bool> Rendezvous::Delete(const RankCaller& caller, const std::string& key) {
  MutexLock lock(mutex_);
  const absl::StatusOr<Scope*> scope = FindScope(caller);
  if (!scope.ok()) return scope.status();
  return (*scope)->values.erase(key) > 0;
}

absl::StatusOr<bool> Rendezvous::HasAll(const RankCaller& caller, const Values& keys) {
  MutexLock lock(mutex_);
  const absl::StatusOr<Scope*> scope = FindScope(caller);
  if (!scope.ok()) return scope.status();
  return AllExist(**scope, keys);
}

absl::StatusOr<Rendezvous::Values> Rendezvous::ListKeys(const RankCaller& caller) {
  MutexLock lock(mutex_);
  const absl::StatusOr<Scope*> scope = FindScope(caller);
  if (!scope.ok()) return scope.status();
  Values keys;
  for (const auto& [key, value] : (*scope)->values) keys.push_back(key);
  return keys;
}

}  // namespace regatta
