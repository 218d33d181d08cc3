#pragma once

#include <string>

namespace regatta {

// The per-node parent of one gang's ranks: `regattad supervise FOLDER`. Uses no network and one
// thread.
//
// Reads FOLDER/launch.json: {"argv": [...], "grace_ms": N, "ranks": [{"env": {...}, "log":
// "rank_0.log"}]}. Appends to FOLDER/exits, one line an event, in order:
//   start RANK PID
//   exit RANK WAIT_STATUS KILLED      raw, as wait(2) gave it; KILLED is 1 where this program had
//   signalled the rank
// The file outlives the daemon. On SIGTERM it sends TERM to the ranks, and KILL after the grace
// time. When all ranks are gone it kills whatever they left (it is their subreaper) and returns the
// exit code for main.
int Supervise(const std::string& folder);

}  // namespace regatta
