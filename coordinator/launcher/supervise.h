#pragma once

#include <string>

namespace regatta {

// The per-node parent of one gang's ranks: `regattad supervise FOLDER`. Uses no network and one
// thread.
//
// Reads FOLDER/launch.json: {"argv": [...], "grace_ms": N, "give_up_ms": N, "ranks": [{"env":
// {...}, "log": "rank_0.log", "cores": [0, 1]}]}. Appends to FOLDER/exits, one line an event, in
// order:
//   start RANK PID
//   exit RANK WAIT_STATUS KILLED OOM_KILLS
//       raw, as wait(2) gave it; KILLED is 1 where this program had signalled the rank; OOM_KILLS
//       counts what the out-of-memory killer took of it, where a control group could be made
//   stuck RANK PROCESS_IDENTITY
//       was killed and is still there after give_up_ms
// The file outlives the daemon. FOLDER/groups lists the control groups that were made, and
// FOLDER/LOG.times, at most once a second, how long a log was when: "UNIX_MICROSECONDS BYTES". On
// SIGTERM it sends TERM to the ranks, and KILL after the grace time. When all ranks are gone it
// kills whatever they left (it is their subreaper) and returns the exit code for main.
int Supervise(const std::string& folder);

}  // namespace regatta
