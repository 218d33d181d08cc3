#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/chaos/fault.h"

namespace regatta {

// Which steps are recorded; active 0: none (meanings: docs/experiment.md, run.profile).
struct ProfileChoice {
  int64_t wait = 0;
  int64_t warmup = 0;
  int64_t active = 0;
  int64_t repeat = 1;
  bool memory = false;
  bool shapes = false;
  std::string folder;  // absolute
};

// A trace that was written.
struct TraceFile {
  std::string path;
  int64_t bytes = 0;
  int64_t first_step = 0;
  int64_t steps = 0;
};

// regatta.v1.RunSpec in standard types (field meanings: proto/regatta/v1/spec.proto).
struct RunSpec {
  struct {
    std::string name;
    std::vector<std::pair<std::string, std::string>> params;
  } strategy;
  struct {
    std::string name;
    std::string folder;
    std::string config_json;
    bool pretrained = false;
  } model;
  struct {
    std::string name;
    std::string train_file;
    std::string eval_file;
    int64_t max_length = 0;
    int64_t train_rows = 0;
    int64_t eval_rows = 0;
    std::string stream;
  } dataset;
  struct OptimizerChoice {
    std::string name;
    std::string implementation;
    double learning_rate = 0;
    double beta1 = 0;
    double beta2 = 0;
    double eps = 0;
    double weight_decay = 0;
    int64_t warmup_steps = 0;
    std::string decay;
  } optimizer;
  int ranks = 1;
  int data_parallel = 1;
  int64_t micro_batches = 0;  // 0: as many as fit
  int64_t batch_size = 1;
  int64_t gradient_accumulation = 1;
  int64_t epochs = 0;
  int64_t steps = 0;
  double clip_norm = 0;  // 0: none
  std::string sampler;
  int64_t padded_length = 0;
  bool drop_last = false;
  int64_t seed = 0;
  bool dropout = false;            // as the model's config says; else none
  std::string precision = "fp32";  // fp32 | tf32 | bf16_mixed
  bool recompute = false;          // layers' activations, in backward
  std::string device;
  std::string backend;
  int threads_per_rank = 1;
  std::string save_folder;  // empty: the model is not kept
  ProfileChoice profile;
  int64_t memory_limit = 0;  // bytes; 0: none
  bool original = false;     // the study's way
  std::vector<Fault> chaos;
};

}  // namespace regatta
