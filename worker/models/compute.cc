#include "worker/models/compute.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <utility>

namespace regatta {
namespace {

// Casts of weights are kept until the block is done: it uses each once.
class AutocastScope {
 public:
  explicit AutocastScope(at::DeviceType device) : device_(device) {
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const at::DeviceType device_;
};

class WrappedBlock : public Block {
 public:
  explicit WrappedBlock(std::unique_ptr<Block> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] std::vector<NamedTensor> Parameters() const override {
    return inner_->Parameters();
  }

 protected:
  const std::unique_ptr<Block> inner_;
};

class Bf16Block : public WrappedBlock {
 public:
  using WrappedBlock::WrappedBlock;
  at::Tensor Forward(const at::Tensor& x, const Batch& batch) override {
    Batch plain = batch;
    plain.weight_gradients = nullptr;  // those layers are not autocast's
    const AutocastScope scope(batch.ids.device().type());
    // Of a leaf (a stage's input, or one that is recomputed) autocast would keep one cast for all
    // uses, and add up their gradients in bf16.
    const bool is_leaf = x.defined() && x.requires_grad() && x.is_leaf();
    return inner_->Forward(is_leaf ? x.view_as(x) : x, plain).to(at::kFloat);
  }
};

// Backward of a block of which nothing but the input was kept.
class Recompute : public torch::autograd::Node {
 public:
  Recompute(Block& block, const Batch& batch, const at::Tensor& x)
      : Node(torch::autograd::collect_next_edges(x)),
        block_(block),
        batch_(batch),
        x_(x, /*is_output=*/false) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::AutoGradMode with_graph(true);
    const at::Tensor x = x_.unpack().detach().set_requires_grad(true);
    block_.Forward(x, batch_).backward(gradients[0]);
    return {x.grad()};
  }

  void release_variables() override {
    x_.reset_data();
    batch_ = {};
  }

 private:
  Block& block_;
  Batch batch_;
  torch::autograd::SavedVariable x_;
};

class RecomputedBlock : public WrappedBlock {
 public:
  using WrappedBlock::WrappedBlock;
  at::Tensor Forward(const at::Tensor& x, const Batch& batch) override {
    if (!at::GradMode::is_enabled() || !x.requires_grad()) return inner_->Forward(x, batch);
    at::Tensor y;
    {
      const at::NoGradGuard no_graph;
      y = inner_->Forward(x, batch);
    }
    torch::autograd::set_history(y, std::shared_ptr<Recompute>(new Recompute(*inner_, batch, x),
                                                               torch::autograd::deleteNode));
    return y;
  }
};

}  // namespace

void ComputeInBf16(Model& model) {
  for (std::unique_ptr<Block>& block : model.blocks) {
    block = std::make_unique<Bf16Block>(std::move(block));
  }
}

void RecomputeLayers(Model& model) {
  for (size_t i = 1; i + 1 < model.blocks.size(); ++i) {
    model.blocks[i] = std::make_unique<RecomputedBlock>(std::move(model.blocks[i]));
  }
}

}  // namespace regatta
