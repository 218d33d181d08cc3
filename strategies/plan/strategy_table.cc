#include "strategies/plan/strategy_table.h"

#include <algorithm>
#include <charconv>

#include "strategies/plan/suggest.h"

namespace regatta {
namespace {

constexpr int64_t kMebibyte = 1 << 20;

bool ApplyBucketMib(const std::string& text, StrategyPlan& plan) {
  double mebibytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mebibytes);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (!(mebibytes > 0 && mebibytes <= 65536)) return false;
  plan.data_parallel.bucket_bytes =
      std::max<int64_t>(1, static_cast<int64_t>(mebibytes * kMebibyte));
  return true;
}

const StrategyParam kBucketMib = {"bucket_mib", "25", "a number above 0, at most 65536",
                                  "MiB of gradients that one all-reduce carries", ApplyBucketMib};

// "it has bucket_mib", "it has none".
std::string OwnParams(const StrategyRow& row) {
  std::string list;
  for (const StrategyParam& param : row.params) {
    list += (list.empty() ? "" : ", ") + std::string(param.name);
  }
  return list.empty() ? "it has none" : "it has " + list;
}

std::string ApplyParam(const StrategyRow& row, const std::string& name, const std::string& text,
                       StrategyPlan& plan) {
  const auto param = std::find_if(row.params.begin(), row.params.end(),
                                  [&](const StrategyParam& p) { return p.name == name; });
  const std::string strategy = "strategy '" + std::string(row.name) + "'";
  if (param == row.params.end()) {
    return strategy + " has no parameter '" + name + "'; " + OwnParams(row);
  }
  if (param->apply(text, plan)) return "";
  return strategy + ": " + name + " is '" + text + "'; " + std::string(param->right) + " is right";
}

}  // namespace

const std::vector<StrategyRow>& StrategyTable() {
  static const std::vector<StrategyRow> table = {
      {.name = "single",
       .family = "reference",
       .origin = "regatta",
       .summary = "one rank, no communication: what every other row is compared with",
       .source = "",
       .max_ranks = 1},
      {.name = "simple_ddp",
       .family = "data parallel",
       .origin = "regatta",
       .summary = "after backward, all-reduce each gradient and wait for it at once",
       .source = "llm-parallelism-pytorch, simple_ddp",
       .data_parallel = {.reduces = true}},
      {.name = "simple_ddp_ga",
       .family = "data parallel",
       .origin = "regatta",
       .summary = "simple_ddp once every 4 batches, whose gradients add up locally",
       .source = "llm-parallelism-pytorch, simple_ddp_ga",
       .data_parallel = {.reduces = true},
       .gradient_accumulation = 4},
      {.name = "bucket_ddp_async",
       .family = "data parallel",
       .origin = "regatta",
       .summary = "all-reduce buckets of gradients inside backward, as soon as each is full",
       .source = "Li et al. 2020, PyTorch Distributed, section 3.2.3",
       .data_parallel = {.reduces = true,
                         .launch = LaunchWhen::kGradientsReady,
                         .wait = WaitWhen::kAtFinish},
       .params = {kBucketMib}},
      {.name = "baseline",
       .family = "sharded",
       .origin = "regatta",
       .summary = "nothing sharded: what zero1 to zero3 are compared with",
       .source = "llm-parallelism-pytorch, baseline",
       .data_parallel = {.reduces = true}},
  };
  return table;
}

const StrategyRow* FindStrategy(const std::string& name) {
  for (const StrategyRow& row : StrategyTable()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::variant<StrategyPlan, PlanError> ParseStrategy(const std::string& name,
                                                    const StrategyParams& params,
                                                    const RunShape& shape) {
  const StrategyRow* row = FindStrategy(name);
  if (row == nullptr) {
    std::vector<std::string> names;
    for (const StrategyRow& known : StrategyTable()) names.emplace_back(known.name);
    return PlanError{"unknown strategy '" + name + "'" + SuggestName(name, names)};
  }
  StrategyPlan plan{name, row->data_parallel};
  for (const StrategyParam& param : row->params) {
    param.apply(std::string(param.default_text), plan);
  }
  for (const auto& [key, text] : params) {
    if (std::string error = ApplyParam(*row, key, text, plan); !error.empty()) {
      return PlanError{std::move(error)};
    }
  }
  if (row->max_ranks != 0 && shape.ranks > row->max_ranks) {
    return PlanError{"strategy '" + name + "' runs on " + std::to_string(row->max_ranks) +
                         " rank, not on " + std::to_string(shape.ranks),
                     /*cannot_run=*/true};
  }
  return plan;
}

}  // namespace regatta
