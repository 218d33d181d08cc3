#include <unistd.h>

#include <cstdio>

#include "worker/rank.h"

// regatta-worker: one rank of a run. Started by regattad; all it needs is in its environment and in
// the run's spec.
int main() {
  const int code = regatta::RunRank({});
  std::fflush(nullptr);
  _exit(code);  // the result is delivered; LibTorch's and gRPC's unwinding takes longer than it is
                // worth
}
