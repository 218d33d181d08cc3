#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace regatta {

// When a rank does itself harm, on purpose.
constexpr int64_t kBeforeJoin = -1;
constexpr int64_t kAfterFinish = -2;

// One fault of a run's `chaos`, as the spec carries it.
struct Fault {
  int rank = 0;
  int64_t step = 0;  // before this step begins, kBeforeJoin or kAfterFinish
  std::string what;  // "exit 3"
};

// What a fault's text says: a word of the table and its number (an exit code, a signal, seconds or
// bytes; 0 where the word has none).
struct FaultAction {
  enum class Kind { kExit, kSignal, kHang, kIgnoreTerm, kStop, kSetsidChild, kSlow, kAllocate };
  Kind kind = Kind::kHang;
  double number = 0;
};

// "exit 0-255", "signal 1-64", "hang", "ignore_term", "stop", "setsid_child", "slow 5s" (or ms),
// "allocate 512MiB" (or KiB, GiB). Nothing where the text is none of them.
[[nodiscard]] std::optional<FaultAction> ParseFault(const std::string& text);
// The words, for messages.
[[nodiscard]] const char* FaultWords();

// Does what this rank's faults say for the moment. Some do not return.
class Chaos {
 public:
  Chaos(const std::vector<Fault>& faults, int rank);
  void At(int64_t step) const;

 private:
  std::vector<Fault> mine_;
};

// The fault before a rank joins, which it cannot know from its spec: REGATTA_CHAOS of its
// environment.
void ActBeforeJoin();

}  // namespace regatta
