#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "worker/client/run_spec.h"

namespace regatta {

// Records Kineto traces of some steps: `wait` steps nothing, `warmup` steps armed, `active` steps
// recorded and written, `repeat` times, as torch.profiler.schedule. Nothing is installed outside of
// it. Files: FOLDER/rank_R/steps_A-B.pt.trace.json.gz, in Kineto's format, with a ProfilerStep#N
// around each step and distributedInfo. One thread, the one that trains.
class StepProfiler {
 public:
  // `profile.active` 0: records nothing. `backend` is "gloo", "nccl" or "none". `on_gpu`: with its
  // kernels.
  StepProfiler(ProfileChoice profile, int rank, int ranks, const std::string& backend,
               bool on_gpu = false);
  ~StepProfiler();
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  void BeginStep(int64_t step);
  // The file that is complete with this step. Throws where it cannot be written.
  [[nodiscard]] std::optional<TraceFile> EndStep();
  // A window that the end of training cut short.
  [[nodiscard]] std::optional<TraceFile> Close();

  // Whether the step that was begun last is slowed by the profiler.
  [[nodiscard]] bool Disturbs() const { return armed_ || recording_; }

 private:
  void Arm();
  TraceFile Write();

  const ProfileChoice profile_;
  const int rank_;
  const std::string distributed_info_;  // JSON
  const bool on_gpu_;
  int64_t step_ = 0;
  int64_t first_recorded_ = 0;
  bool armed_ = false;
  bool recording_ = false;
  std::unique_ptr<at::RecordFunction> around_step_;
};

}  // namespace regatta
