#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace regatta {

class WeightGradients;

// What the masks of one training step follow from, with layer and row (strategies/layers.h).
struct DropoutSeed {
  int64_t seed = 0;  // of the run
  int64_t step = 0;
};

// The rows of one loader batch that this rank works on, padded at the right.
struct Batch {
  at::Tensor ids;      // [rows, length], int64
  at::Tensor lengths;  // [rows], int64: real tokens of each row
  at::Tensor labels;   // [rows], int64
  at::Tensor row_ids;  // [rows], int64: where each row is in the training split
  // How much the mean loss of these rows counts: the sum over a step's batches and over the shares
  // of its rows, divided by the number of shares, is the step's loss.
  double loss_weight = 1;
  int64_t real_tokens = 0;             // of this rank's rows
  at::Tensor attention_bias;           // set by Model::prepare; undefined where no row is padded
  std::optional<DropoutSeed> dropout;  // unset: nothing is dropped
  WeightGradients* weight_gradients =
      nullptr;  // who makes them (strategies/layers.h); null: autograd

  [[nodiscard]] int64_t Rows() const { return ids.defined() ? ids.size(0) : 0; }
  // What blocks read; row_ids stay where they are.
  void MoveTo(at::Device device) {
    if (Rows() == 0) return;
    ids = ids.to(device);
    lengths = lengths.to(device);
    labels = labels.to(device);
  }
};

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// One piece of a model: a tensor in, a tensor out. A pipeline stage is a slice of the list of
// blocks.
class Block {
 public:
  virtual ~Block() = default;
  // The first block ignores `x` and reads batch.ids.
  virtual at::Tensor Forward(const at::Tensor& x, const Batch& batch) = 0;
  // Leaves that require a gradient, in registration order.
  [[nodiscard]] virtual std::vector<NamedTensor> Parameters() const = 0;
};

// Writes the initial values of elements [begin, end) of the parameter of that name.
using WeightReader =
    std::function<void(const std::string& name, int64_t begin, int64_t end, float* to)>;

// A model is a list of blocks; the last one gives logits [rows, labels].
struct Model {
  std::vector<std::unique_ptr<Block>> blocks;
  int64_t width = 0;                    // each block but the last hands on [rows, length, width]
  std::function<void(Batch&)> prepare;  // what all blocks need of a batch, made once
  // Parameters have no memory until a strategy decides which elements this rank keeps
  // (strategies/weights.h). Empty: they hold their values already.
  WeightReader read_weights;
};

// Each once, by its first name, however many blocks share it.
[[nodiscard]] inline std::vector<NamedTensor> ParametersOf(const Model& model) {
  std::vector<NamedTensor> parameters;
  std::set<at::TensorImpl*> seen;
  for (const auto& block : model.blocks) {
    for (NamedTensor& parameter : block->Parameters()) {
      if (seen.insert(parameter.tensor.unsafeGetTensorImpl()).second)
        parameters.push_back(std::move(parameter));
    }
  }
  return parameters;
}

// Logits [rows, labels].
[[nodiscard]] inline at::Tensor Forward(const Model& model, const Batch& batch) {
  Batch prepared = batch;
  model.prepare(prepared);
  at::Tensor x;
  for (const auto& block : model.blocks) x = block->Forward(x, prepared);
  return x;
}

}  // namespace regatta
