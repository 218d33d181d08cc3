#pragma once

namespace regatta {

// What a rank's exit code says (docs/design.md).
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 64,
  kExitBadSpec = 65,
  kExitDeviceMemory = 66,  // the run does not fit into what a rank may use, or has
  kExitCollective = 67,    // a collective failed or timed out: most often a peer has died
  kExitRefused = 68        // the coordinator does not know this attempt any more
};

}  // namespace regatta
