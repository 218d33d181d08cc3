#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "strategies/collectives/collectives.h"
#include "strategies/model.h"
#include "strategies/plan/strategy_table.h"

namespace regatta {

// Some parameters of a model in one flat buffer, of which each rank owns a slice. The parameters
// are views of the buffer: they lose and get back their memory with it. Buffers are written through
// the flat tensor alone, so that autograd takes what backward reads for what forward saw. One
// thread.
class Unit {
 public:
  // Of all `parameters`, whose `sizes` these are. Reads what this rank keeps of the initial values.
  // `world` may be null: one rank.
  Unit(const ShardedPlan& plan, const UnitMembers& members,
       const std::vector<NamedTensor>& parameters, const std::vector<ParameterSize>& sizes,
       const Model& model, Collectives* world);

  [[nodiscard]] size_t FirstBlock() const { return blocks_.front(); }
  [[nodiscard]] size_t LastBlock() const { return blocks_.back(); }
  [[nodiscard]] const std::vector<size_t>& Blocks() const { return blocks_; }
  // Indices among all parameters.
  [[nodiscard]] const std::vector<size_t>& Members() const { return members_; }

  // ---- parameters ----

  // Nothing where they are there, or on their way.
  void StartGather();
  void AwaitGather();
  [[nodiscard]] bool Resident() const { return state_ == State::kResident; }
  // Frees them; the slice stays. Nothing where they are never cut.
  void Release();
  // Slices were updated: whole parameters are on their way again, or wait for the next gather.
  void SlicesChanged();

  // ---- gradients ----

  // A backward begins.
  void ExpectGradients() { missing_ = members_.size(); }
  // Moves a member's gradient into the unit's buffer, and what later backwards add with it. Whether
  // it was the backward's last one of the unit.
  bool TakeGradient(size_t member);
  // Members without a gradient count as zero.
  void StartReduction();
  // Nothing where none was started. Afterwards this rank's slice has what it had and the mean over
  // ranks of what was placed.
  void AwaitReduction();

  // What this rank updates. Gradients are those of the slice between GiveGradients and
  // DropGradients.
  [[nodiscard]] const std::vector<at::Tensor>& Shards() const { return shards_; }
  void GiveGradients();
  void DropGradients();

  // Kept between steps; and of gradients in a step, where `whole` ones add up first.
  [[nodiscard]] int64_t ParameterBytes() const;
  [[nodiscard]] int64_t GradientBytes(bool whole) const;

 private:
  enum class State { kReleased, kOnItsWay, kResident };

  [[nodiscard]] bool InOrder() const { return plan_.slices == SliceKind::kElements; }
  [[nodiscard]] int64_t FlatElements() const;
  [[nodiscard]] int64_t ShardBytes() const;
  [[nodiscard]] at::Tensor OwnPart(const at::Tensor& flat) const;
  void LoadSlice(const Model& model);
  void AllocateGradients();
  void PlaceGradient(size_t member);
  // Between the parameters one after another and the ranks' slices one after another.
  void CopySegments(const at::Tensor& flat, const at::Tensor& slices, bool to_slices) const;

  const ShardedPlan plan_;
  const std::vector<size_t> blocks_;
  const std::vector<size_t> members_;
  std::vector<NamedTensor> parameters_;
  std::vector<int64_t> starts_;  // of each member in a flat buffer; then its end
  Collectives* const world_;
  const int ranks_;
  const int rank_;
  SlicePlan slices_;
  at::TensorOptions options_;  // of all buffers

  at::Tensor flat_;
  at::Tensor slice_;
  std::vector<at::Tensor> shards_;  // views of the slice
  State state_ = State::kResident;
  at::Tensor gathered_;  // slices one after another, where that is not the order of parameters
  std::optional<PendingWork> gather_;

  size_t missing_ = 0;    // gradients of the backward under way
  at::Tensor gradients_;  // as flat_
  at::Tensor reduced_;    // sum over ranks, once waited for
  at::Tensor slice_gradient_;
  std::optional<PendingWork> reduction_;
  bool reducing_ = false;
};

}  // namespace regatta
