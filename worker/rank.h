#pragma once

#include <functional>

#include "strategies/strategy.h"
#include "worker/client/coordinator_client.h"

namespace regatta {

// Called on every rank when training is over, before its result is sent; a collective point.
using AfterTraining = std::function<void(Strategy& strategy, const RankIdentity& identity)>;

// One rank's whole life: finds its run, joins, trains, evaluates, sends its result. Returns the
// exit code. The only place where a rank catches: an error is sent to the coordinator as a sentence
// and written to the log.
[[nodiscard]] int RunRank(const AfterTraining& after_training);

}  // namespace regatta
