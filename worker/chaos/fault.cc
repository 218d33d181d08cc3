#include "worker/chaos/fault.h"

#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace regatta {
namespace {

using Kind = FaultAction::Kind;

struct Unit {
  const char* name;
  double factor;
};

struct FaultWord {
  const char* word;
  Kind kind;
  double least;  // of its number; least > most: it has none
  double most;
  std::vector<Unit> units;  // one of them ends the number; empty: a bare integer
};

const std::vector<FaultWord>& Words() {
  static const std::vector<FaultWord> words = {
      {"exit", Kind::kExit, 0, 255, {}},
      {"signal", Kind::kSignal, 1, 64, {}},
      {"hang", Kind::kHang, 1, 0, {}},
      {"ignore_term", Kind::kIgnoreTerm, 1, 0, {}},
      {"stop", Kind::kStop, 1, 0, {}},
      {"setsid_child", Kind::kSetsidChild, 1, 0, {}},
      {"slow", Kind::kSlow, 0, 86400, {{"ms", 0.001}, {"s", 1}, {"m", 60}}},
      {"allocate", Kind::kAllocate, 1, 1e15, {{"KiB", 1024}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}},
  };
  return words;
}

// The number of a word, with its unit taken into account.
std::optional<double> ReadNumber(std::string text, const FaultWord& word) {
  double factor = 1;
  bool has_unit = word.units.empty();
  for (const Unit& unit : word.units) {
    if (!has_unit && text.ends_with(unit.name)) {
      text.resize(text.size() - std::strlen(unit.name));
      factor = unit.factor;
      has_unit = true;
    }
  }
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!has_unit || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  number *= factor;
  const bool whole = !word.units.empty() || number == static_cast<int>(number);
  if (!whole || !(number >= word.least && number <= word.most)) return std::nullopt;
  return number;
}

[[noreturn]] void Hang() {
  for (;;) pause();
}

void DieBySignal(int signal) {
  std::signal(signal, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  kill(getpid(), signal);
}

void SleepFor(double seconds) {
  timespec left{
      static_cast<time_t>(seconds),
      static_cast<long>((seconds - static_cast<double>(static_cast<time_t>(seconds))) * 1e9)};
  while (nanosleep(&left, &left) != 0) {
  }
}

// A descendant that leaves the session and the process group, as daemons do.
void LeaveChild() {
  if (fork() != 0) return;
  setsid();
  Hang();
}

// Touched, so that the system really has to find it; kept until the process ends.
void Allocate(double bytes) {
  static char* volatile kept;  // else a compiler may leave all of this out
  const auto size = static_cast<size_t>(bytes);
  kept = static_cast<char*>(std::malloc(size));
  if (kept != nullptr) std::memset(kept, 1, size);
}

void Act(const FaultAction& action) {
  std::fflush(nullptr);
  switch (action.kind) {
    case Kind::kExit:
      _exit(static_cast<int>(action.number));
    case Kind::kSignal:
      return DieBySignal(static_cast<int>(action.number));
    case Kind::kHang:
      Hang();
    case Kind::kIgnoreTerm:
      std::signal(SIGTERM, SIG_IGN);
      return;
    case Kind::kStop:
      kill(getpid(), SIGSTOP);
      return;
    case Kind::kSetsidChild:
      return LeaveChild();
    case Kind::kSlow:
      return SleepFor(action.number);
    case Kind::kAllocate:
      return Allocate(action.number);
  }
}

}  // namespace

std::optional<FaultAction> ParseFault(const std::string& text) {
  const size_t blank = text.find(' ');
  const std::string name = text.substr(0, blank);
  for (const FaultWord& word : Words()) {
    if (name != word.word) continue;
    const bool has_number = word.least <= word.most;
    if (!has_number) {
      if (blank != std::string::npos) return std::nullopt;
      return FaultAction{word.kind, 0};
    }
    if (blank == std::string::npos) return std::nullopt;
    const std::optional<double> number = ReadNumber(text.substr(blank + 1), word);
    if (!number) return std::nullopt;
    return FaultAction{word.kind, *number};
  }
  return std::nullopt;
}

const char* FaultWords() {
  return "exit 0-255, signal 1-64, hang, ignore_term, stop, setsid_child, slow 5s or allocate 512MiB";
}

Chaos::Chaos(const std::vector<Fault>& faults, int rank) {
  for (const Fault& fault : faults) {
    if (fault.rank == rank) mine_.push_back(fault);
  }
}

void Chaos::At(int64_t step) const {
  for (const Fault& fault : mine_) {
    if (fault.step != step) continue;
    if (const auto action = ParseFault(fault.what)) Act(*action);
  }
}

void ActBeforeJoin() {
  const char* text = std::getenv("REGATTA_CHAOS");
  if (text == nullptr) return;
  if (const auto action = ParseFault(text)) Act(*action);
}

}  // namespace regatta
