#pragma once

#include <memory>
#include <string>
#include <utility>

#include "coordinator/store/changes.h"
#include "regatta/v1/spec.pb.h"

namespace regatta {

// A run of experiment 1 as the loop would submit it, of one rank.
inline NewRun StoredRunOf(int64_t id, std::string state, std::string name = "r") {
  v1::RunSpec spec;
  spec.set_ranks(1);
  NewRun run{};
  run.id = id;
  run.experiment = 1;
  run.position = id - 1;
  run.repeat = 1;
  run.name = std::move(name);
  run.strategy = "single";
  run.model = "m";
  run.dataset = "d";
  run.ranks = 1;
  run.spec = std::make_shared<const std::string>(spec.SerializeAsString());
  run.state = std::move(state);
  run.submitted_us = 5;
  return run;
}

}  // namespace regatta
