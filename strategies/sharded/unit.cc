#include "strategies/sharded/unit.h"

#include <utility>

#include "strategies/weights.h"

namespace regatta {
namespace {

template <typename Value>
std::vector<Value> Pick(const std::vector<Value>& all, const std::vector<size_t>& which) {
  std::vector<Value> picked;
  for (const size_t i : which) picked.push_back(all[i]);
  return picked;
}

}  // namespace

Unit::Unit(const ShardedPlan& plan, const UnitMembers& members,
           const std::vector<NamedTensor>& parameters, const std::vector<ParameterSize>& sizes,
           const Model& model, Collectives* world)
    : plan_(plan),
      blocks_(members.blocks),
      members_(members.parameters),
      parameters_(Pick(parameters, members.parameters)),
      world_(world),
      ranks_(world == nullptr ? 1 : world->Size()),
      rank_(world == nullptr ? 0 : world->Rank()) {
  const at::NoGradGuard no_grad;
  starts_.push_back(0);
  for (const NamedTensor& parameter : parameters_) {
    starts_.push_back(starts_.back() + parameter.tensor.numel());
  }
  slices_ = PlanSlices(plan_.slices, Pick(sizes, members_), ranks_);
  options_ = parameters_[0].tensor.options().requires_grad(false);
  flat_ = at::empty({FlatElements()}, options_);
  if (plan_.parameters_sharded) {
    slice_ = at::zeros({slices_.slice_elements}, options_);
    LoadSlice(model);
  } else {
    slice_ = OwnPart(flat_);
    flat_.narrow(0, starts_.back(), flat_.numel() - starts_.back()).zero_();
    for (size_t m = 0; m < parameters_.size(); ++m) {
      ReadWeights(model, parameters_[m], 0,
                  flat_.narrow(0, starts_[m], parameters_[m].tensor.numel()));
    }
  }
  for (size_t m = 0; m < parameters_.size(); ++m) {
    const at::Tensor& tensor = parameters_[m].tensor;
    tensor.set_data(flat_.narrow(0, starts_[m], tensor.numel()).view(tensor.sizes()));
  }
  if (InOrder()) {
    shards_.push_back(slice_);
  } else {
    for (const Segment& segment : slices_.of_rank[static_cast<size_t>(rank_)]) {
      shards_.push_back(slice_.narrow(0, segment.offset, segment.elements));
    }
  }
  Release();
}

int64_t Unit::FlatElements() const {
  return InOrder() ? slices_.slice_elements * ranks_ : starts_.back();
}

at::Tensor Unit::OwnPart(const at::Tensor& flat) const {
  return flat.narrow(0, rank_ * slices_.slice_elements, slices_.slice_elements);
}

void Unit::LoadSlice(const Model& model) {
  for (const Segment& segment : slices_.of_rank[static_cast<size_t>(rank_)]) {
    ReadWeights(model, parameters_[segment.parameter], segment.begin,
                slice_.narrow(0, segment.offset, segment.elements));
  }
}

void Unit::CopySegments(const at::Tensor& flat, const at::Tensor& slices, bool to_slices) const {
  for (size_t rank = 0; rank < slices_.of_rank.size(); ++rank) {
    const int64_t start = static_cast<int64_t>(rank) * slices_.slice_elements;
    for (const Segment& segment : slices_.of_rank[rank]) {
      const at::Tensor in_flat =
          flat.narrow(0, starts_[segment.parameter] + segment.begin, segment.elements);
      const at::Tensor in_slices = slices.narrow(0, start + segment.offset, segment.elements);
      if (to_slices) {
        in_slices.copy_(in_flat);
      } else {
        in_flat.copy_(in_slices);
      }
    }
  }
}

void Unit::StartGather() {
  if (state_ != State::kReleased) return;
  const at::NoGradGuard no_grad;
  state_ = State::kOnItsWay;
  SetMemory(flat_, flat_.nbytes());
  if (world_ == nullptr) {
    gathered_ = slice_;
  } else {
    gathered_ = InOrder() ? flat_ : at::empty({slices_.slice_elements * ranks_}, options_);
    gather_.emplace(world_->AllGatherInto(gathered_, slice_));
  }
}

void Unit::AwaitGather() {
  if (state_ != State::kOnItsWay) return;
  const at::NoGradGuard no_grad;
  if (gather_) gather_->Wait();
  gather_.reset();
  if (!gathered_.is_alias_of(flat_)) CopySegments(flat_, gathered_, /*to_slices=*/false);
  gathered_.reset();
  state_ = State::kResident;
}

void Unit::Release() {
  if (!plan_.parameters_sharded || state_ == State::kReleased) return;
  AwaitGather();
  SetMemory(flat_, 0);
  state_ = State::kReleased;
}

void Unit::SlicesChanged() {
  if (plan_.parameters_sharded) {
    Release();
  } else if (world_ != nullptr) {
    const at::NoGradGuard no_grad;
    gathered_ = flat_;
    gather_.emplace(world_->AllGatherInto(flat_, slice_));
    state_ = State::kOnItsWay;
  }
}

void Unit::AllocateGradients() {
  gradients_ = at::empty({FlatElements()}, options_);
  gradients_.narrow(0, starts_.back(), gradients_.numel() - starts_.back()).zero_();
}

bool Unit::TakeGradient(size_t member) {
  PlaceGradient(member);
  return --missing_ == 0;
}

void Unit::PlaceGradient(size_t member) {
  const at::NoGradGuard no_grad;
  if (!gradients_.defined()) AllocateGradients();
  const at::Tensor& tensor = parameters_[member].tensor;
  at::Tensor& gradient = tensor.mutable_grad();
  if (gradient.defined() && gradient.is_alias_of(gradients_)) return;
  const at::Tensor place =
      gradients_.narrow(0, starts_[member], tensor.numel()).view(tensor.sizes());
  if (gradient.defined()) {
    place.copy_(gradient);
  } else {
    place.zero_();
  }
  gradient = place;
}

void Unit::StartReduction() {
  const at::NoGradGuard no_grad;
  for (size_t m = 0; m < parameters_.size(); ++m) PlaceGradient(m);
  at::Tensor input = gradients_;
  if (!InOrder()) {
    input = at::zeros({slices_.slice_elements * ranks_}, options_);
    CopySegments(gradients_, input, /*to_slices=*/true);
  }
  reduced_ =
      plan_.gradients_sharded ? at::empty({slices_.slice_elements}, options_) : OwnPart(gradients_);
  if (plan_.gradients_sharded) {
    for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
    gradients_.reset();
  }
  reducing_ = true;
  if (world_ == nullptr) {
    if (!reduced_.is_alias_of(input)) reduced_ = input;
    return;
  }
  reduction_.emplace(world_->ReduceScatterSum(
      input, reduced_,
      plan_.emulated_reduce_scatter ? ReduceScatter::kEmulated : ReduceScatter::kDirect));
}

void Unit::AwaitReduction() {
  if (!std::exchange(reducing_, false)) return;
  const at::NoGradGuard no_grad;
  if (reduction_) reduction_->Wait();
  reduction_.reset();
  if (ranks_ > 1) reduced_.div_(ranks_);
  if (slice_gradient_.defined()) {
    slice_gradient_.add_(reduced_);
  } else {
    slice_gradient_ = reduced_;
  }
  reduced_.reset();
}

void Unit::GiveGradients() {
  if (InOrder()) {
    shards_[0].mutable_grad() = slice_gradient_;
    return;
  }
  const std::vector<Segment>& own = slices_.of_rank[static_cast<size_t>(rank_)];
  for (size_t i = 0; i < own.size(); ++i) {
    shards_[i].mutable_grad() = slice_gradient_.narrow(0, own[i].offset, own[i].elements);
  }
}

void Unit::DropGradients() {
  for (const at::Tensor& shard : shards_) shard.mutable_grad().reset();
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  slice_gradient_.reset();
}

int64_t Unit::ShardBytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& shard : shards_) bytes += static_cast<int64_t>(shard.nbytes());
  return bytes;
}

int64_t Unit::ParameterBytes() const {
  return plan_.parameters_sharded ? ShardBytes() : static_cast<int64_t>(flat_.nbytes());
}

int64_t Unit::GradientBytes(bool whole) const {
  return whole ? FlatElements() * static_cast<int64_t>(sizeof(float)) : ShardBytes();
}

}  // namespace regatta
