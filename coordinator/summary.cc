#include "coordinator/summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

namespace regatta {
namespace {

enum class Combine { kSum, kLargest, kMean };
struct Rule {
  std::string_view name;
  Combine combine;
};
constexpr Rule kRules[] = {
    {"steps", Combine::kLargest},
    {"warmup_steps", Combine::kLargest},
    {"step_seconds_median", Combine::kLargest},
    {"step_seconds_p95", Combine::kLargest},
    {"joined_to_first_step_seconds", Combine::kLargest},
    {"measured_seconds", Combine::kLargest},
    {"measured_steps", Combine::kLargest},
    {"measured_tokens", Combine::kSum},
    {"measured_rows", Combine::kSum},
    {"last_loss_sum", Combine::kSum},
    {"last_loss_rows", Combine::kSum},
    {"eval_loss_sum", Combine::kSum},
    {"eval_correct", Combine::kSum},
    {"eval_rows", Combine::kSum},
    {"peak_rss_bytes", Combine::kLargest},
    {"peak_tensor_bytes", Combine::kLargest},
    {"peak_load_bytes", Combine::kLargest},
    {"peak_forward_bytes", Combine::kLargest},
    {"peak_backward_bytes", Combine::kLargest},
    {"peak_optimizer_bytes", Combine::kLargest},
    {"peak_steady_bytes", Combine::kLargest},
    {"parameter_bytes", Combine::kLargest},
    {"gradient_bytes", Combine::kLargest},
    {"optimizer_bytes", Combine::kLargest},
    {"param_bytes_total", Combine::kLargest},  // of the whole model: all ranks say the same
    {"payload_bytes_per_step", Combine::kLargest},
    {"calls_per_step", Combine::kLargest},
    {"bytes_sent_per_step", Combine::kMean},
    {"transfer_seconds", Combine::kLargest},  // these are told by a pipeline's first rank alone
    {"bubble_measured", Combine::kLargest},
    {"bubble_program", Combine::kLargest},
    {"bubble_imbalance", Combine::kLargest},
    {"bubble_transfer", Combine::kLargest},
    {"bubble_rest", Combine::kLargest},
};

// Wilson score interval (Wilson 1927): holds for small counts and near 0 and 1.
std::pair<double, double> WilsonInterval(double correct, double rows) {
  constexpr double z = 1.959964;  // 97.5 % quantile of the normal distribution
  const double share = correct / rows;
  const double denominator = 1 + z * z / rows;
  const double middle = (share + z * z / (2 * rows)) / denominator;
  const double half =
      z * std::sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows)) / denominator;
  return {middle - half, middle + half};
}

}  // namespace

NamedNumbers SummarizeRun(const std::vector<NamedNumbers>& ranks) {
  std::map<std::string_view, double> run;
  for (const Rule& rule : kRules) {
    for (const NamedNumbers& rank : ranks) {
      for (const auto& [name, value] : rank) {
        if (name != rule.name) continue;
        const auto [place, is_new] = run.try_emplace(rule.name, value);
        if (is_new) continue;
        // A NaN of any rank must show.
        place->second = rule.combine != Combine::kLargest || std::isnan(value)
                            ? place->second + value
                            : std::max(place->second, value);
      }
    }
    if (rule.combine == Combine::kMean && run.contains(rule.name)) {
      run[rule.name] /= static_cast<double>(ranks.size());
    }
  }
  NamedNumbers summary;
  for (const auto& [name, value] : run) summary.emplace_back(name, value);
  const auto ratio = [&](std::string_view name, std::string_view over, std::string_view under) {
    if (run.contains(over) && run.contains(under) && run[under] > 0) {
      summary.emplace_back(name, run[over] / run[under]);
    }
  };
  ratio("loss", "last_loss_sum", "last_loss_rows");
  ratio("tokens_per_second", "measured_tokens", "measured_seconds");
  ratio("samples_per_second", "measured_rows", "measured_seconds");
  ratio("steps_per_second", "measured_steps", "measured_seconds");
  ratio("eval_loss", "eval_loss_sum", "eval_rows");
  ratio("accuracy", "eval_correct", "eval_rows");
  if (run.contains("eval_rows") && run["eval_rows"] > 0) {
    const auto [low, high] = WilsonInterval(run["eval_correct"], run["eval_rows"]);
    summary.emplace_back("accuracy_low", low);
    summary.emplace_back("accuracy_high", high);
  }
  return summary;
}

}  // namespace regatta
