#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strategies/model.h"
#include "worker/client/run_spec.h"
#include "worker/data/shard.h"

namespace regatta {

// Pads rows of a shard at the right: to `length`, or to the longest of them where it is 0.
[[nodiscard]] Batch Collate(const Shard& shard, const std::vector<int64_t>& rows, int64_t length,
                            int64_t pad_id);

// Which rows of each batch a rank works on: every `of`-th, from `index` on.
struct RowShare {
  int index = 0;
  int of = 1;
};

// Hands out one rank's batches, step after step, over the epochs. All ranks take the same number of
// steps.
class Loader {
 public:
  // Throws where the shard cannot fill one batch.
  Loader(const RunSpec& spec, Shard shard, int64_t pad_id, RowShare share,
         at::Device device = at::kCPU);

  // Names the rows and their content: equal only where two ranks read the same.
  [[nodiscard]] std::string Fingerprint() const;
  // Optimizer steps of the whole run: the sooner of spec.steps and spec.epochs.
  [[nodiscard]] int64_t PlannedSteps() const;
  // Rows such as this rank's batches have; only for measuring.
  [[nodiscard]] Batch Sample() const;
  // The step's loader batches: gradient_accumulation of them, fewer in an epoch's last step.
  [[nodiscard]] std::vector<Batch> NextStep();

 private:
  void StartEpoch();
  [[nodiscard]] double LossWeight(int64_t rows, int64_t step_rows) const;

  const RunSpec& spec_;
  const Shard shard_;
  const int64_t pad_id_;
  const RowShare share_;
  const at::Device device_;
  int64_t rows_per_epoch_ = 0;
  int64_t batches_per_epoch_ = 0;
  int64_t epoch_ = -1;
  int64_t next_batch_ = 0;  // of the epoch
  int64_t step_ = 0;        // of the run
  std::vector<int64_t> order_;
  std::vector<int64_t> lengths_;  // tokens, by row
};

struct EvaluationPlan {
  int64_t batch_rows = 1;     // at most
  int64_t padded_length = 0;  // 0: to the longest of a batch
  int64_t pad_id = 0;
  at::Device device = at::kCPU;
  bool wraps = false;  // the first rows count twice where shares would differ, as in the study
};

// A share of an evaluation split, each row in exactly one unless it wraps; all shares have equally
// many batches, the last ones perhaps without rows.
[[nodiscard]] std::vector<Batch> EvaluationBatches(const Shard& shard, const EvaluationPlan& plan,
                                                   RowShare share);

}  // namespace regatta
