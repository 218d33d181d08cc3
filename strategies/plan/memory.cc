#include "strategies/plan/memory.h"

#include <algorithm>
#include <utility>

#include "strategies/plan/buckets.h"

namespace regatta {
namespace {

// What is there at a moment, and the most that ever was.
class Meter {
 public:
  void Add(int64_t bytes) {
    now_ += bytes;
    peak_ = std::max(peak_, now_);
  }
  // For a moment only.
  void Touch(int64_t bytes) { peak_ = std::max(peak_, now_ + bytes); }
  // The peak since it was asked last.
  int64_t Take() {
    const int64_t peak = peak_;
    peak_ = now_;
    return peak;
  }

 private:
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

std::vector<int64_t> BytesByBlock(const std::vector<ParameterSize>& parameters, size_t blocks) {
  std::vector<int64_t> bytes(blocks);
  for (const ParameterSize& parameter : parameters) {
    bytes.at(parameter.blocks.at(0)) += 4 * parameter.elements;
  }
  return bytes;
}

PeakPrediction PeaksOfDataParallel(const DataParallelPlan& how, const PredictionInputs& inputs,
                                   const std::vector<BlockActivations>& blocks,
                                   const Prediction& states) {
  const std::vector<int64_t> of_block = BytesByBlock(inputs.parameters, blocks.size());
  PeakPrediction peaks;
  Meter meter;
  meter.Add(states.parameter_bytes + states.optimizer_bytes);
  peaks.load = meter.Take();
  const bool communicates = how.reduces && inputs.ranks > 1;
  // Buckets of several parameters live as long as the run; LibTorch's take the gradients' place
  // where those are views of them.
  const bool flat = communicates && (how.native || how.bucket_bytes > 0);
  if (flat) meter.Add(states.parameter_bytes);
  const bool views = how.native && how.gradient_as_bucket_view;
  const bool moves = flat && !how.native;  // gradients become views once their bucket is full
  if (inputs.accumulation > 1 && !views) meter.Add(states.gradient_bytes);
  for (const BlockActivations& block : blocks) {
    meter.Touch(block.saved + block.forward_extra);
    meter.Add(block.saved);
  }
  peaks.forward = meter.Take();
  int64_t in_bucket = 0;
  for (size_t b = blocks.size(); b-- > 0;) {
    const int64_t fresh = views || inputs.accumulation > 1 ? 0 : of_block[b];
    meter.Touch(blocks[b].backward_extra);
    meter.Add(fresh);
    in_bucket += fresh;
    if (moves && in_bucket >= how.bucket_bytes) meter.Add(-std::exchange(in_bucket, 0));
    meter.Add(-blocks[b].saved);
  }
  peaks.backward = meter.Take();
  if (moves) meter.Add(-(inputs.accumulation > 1 ? states.gradient_bytes : in_bucket));
  meter.Take();  // what was before the gradients moved
  peaks.optimizer = meter.Take();
  return peaks;
}

enum class Place { kElsewhere, kOnItsWay, kHere };

// Of one unit, in bytes.
struct UnitBytes {
  Place place = Place::kElsewhere;  // its parameters, where they are cut
  size_t first_block = 0;
  size_t last_block = 0;
  int64_t flat = 0;   // its parameters, or their gradients
  int64_t slice = 0;  // one rank's, padded
  int64_t largest = 0;
};

class ShardedStep {
 public:
  ShardedStep(const ShardedPlan& plan, const PredictionInputs& inputs,
              const std::vector<BlockActivations>& blocks, const Prediction& states)
      : plan_(plan), inputs_(inputs), blocks_(blocks), states_(states) {
    for (const UnitMembers& unit : MakeUnits(plan.unit, inputs.parameters)) {
      std::vector<ParameterSize> members;
      UnitBytes bytes;
      bytes.first_block = unit.blocks.front();
      bytes.last_block = unit.blocks.back();
      for (const size_t p : unit.parameters) {
        members.push_back(inputs.parameters[p]);
        bytes.flat += 4 * members.back().elements;
        bytes.largest = std::max(bytes.largest, 4 * members.back().elements);
      }
      bytes.slice = 4 * PlanSlices(plan.slices, members, inputs.ranks).slice_elements;
      if (plan.slices == SliceKind::kElements) bytes.flat = bytes.slice * inputs.ranks;
      units_.push_back(bytes);
    }
  }

  PeakPrediction Peaks() {
    PeakPrediction peaks;
    meter_.Add(states_.parameter_bytes + states_.optimizer_bytes);
    if (plan_.parameters_sharded) meter_.Touch(LargestFlat());
    peaks.load = meter_.Take();
    const bool whole = !plan_.gradients_sharded ||
                       (plan_.accumulate == Accumulate::kFull && inputs_.accumulation > 1);
    const bool sums_slices = plan_.gradients_sharded && inputs_.accumulation > 1 && !whole;
    if (whole || sums_slices) meter_.Add(states_.gradient_bytes);
    Forward();
    peaks.forward = meter_.Take();
    Backward(/*makes_gradients=*/!whole, /*keeps_slices=*/!whole && !sums_slices);
    peaks.backward = meter_.Take();
    peaks.optimizer = meter_.Take();
    return peaks;
  }

 private:
  int64_t LargestFlat() const {
    int64_t largest = 0;
    for (const UnitBytes& unit : units_) largest = std::max(largest, unit.flat);
    return largest;
  }

  // The ranks' slices one after another, where that is not the order of parameters.
  int64_t Arriving(const UnitBytes& unit) const {
    return plan_.slices == SliceKind::kRows ? unit.slice * inputs_.ranks : 0;
  }

  void StartGather(UnitBytes& unit) {
    if (!plan_.parameters_sharded || unit.place != Place::kElsewhere) return;
    unit.place = Place::kOnItsWay;
    meter_.Add(unit.flat + Arriving(unit));
  }

  void AwaitGather(UnitBytes& unit) {
    if (unit.place != Place::kOnItsWay) return;
    unit.place = Place::kHere;
    meter_.Add(-Arriving(unit));
  }

  // The one that is needed now, and those after it in `order`.
  void Gather(const std::vector<UnitBytes*>& order, size_t current) {
    StartGather(*order[current]);
    AwaitGather(*order[current]);
    const size_t end = std::min(order.size(), current + 1 + static_cast<size_t>(plan_.prefetch));
    for (size_t next = current + 1; next < end; ++next) StartGather(*order[next]);
  }

  void Release(UnitBytes& unit) {
    if (unit.place == Place::kElsewhere) return;
    AwaitGather(unit);
    unit.place = Place::kElsewhere;
    meter_.Add(-unit.flat);
  }

  void Forward() {
    std::vector<UnitBytes*> order;
    for (UnitBytes& unit : units_) order.push_back(&unit);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (size_t i = 0; i < order.size(); ++i) {
        if (order[i]->first_block == b) Gather(order, i);
      }
      meter_.Touch(blocks_[b].saved + blocks_[b].forward_extra);
      meter_.Add(blocks_[b].saved);
      for (UnitBytes& unit : units_) {
        if (plan_.reshard_after_forward && unit.last_block == b) Release(unit);
      }
    }
  }

  void Backward(bool makes_gradients, bool keeps_slices) {
    std::vector<UnitBytes*> order;
    for (UnitBytes& unit : units_) order.push_back(&unit);
    std::sort(order.begin(), order.end(),
              [](const UnitBytes* a, const UnitBytes* b) { return a->last_block > b->last_block; });
    int64_t in_flight = 0;
    for (size_t b = blocks_.size(); b-- > 0;) {
      for (size_t i = 0; i < order.size(); ++i) {
        if (order[i]->last_block != b) continue;
        Gather(order, i);
        if (makes_gradients) meter_.Add(order[i]->flat);
      }
      meter_.Touch(blocks_[b].backward_extra);
      for (UnitBytes& unit : units_) {
        if (unit.first_block != b) continue;
        meter_.Touch(unit.largest);  // a gradient that autograd has made, before it is placed
        Release(unit);
        if (keeps_slices) meter_.Add(unit.slice);
        meter_.Add(-std::exchange(in_flight, 0));
        if (inputs_.ranks == 1) {
          in_flight = makes_gradients ? unit.flat : 0;
          continue;
        }
        // The buffer until it is sent, and what comes from others.
        const int64_t copied = Arriving(unit);
        const int64_t received =
            plan_.emulated_reduce_scatter ? 0 : unit.slice * (inputs_.ranks - 1);
        meter_.Add(copied + received);
        if (makes_gradients && copied > 0) meter_.Add(-unit.flat);
        in_flight = copied > 0 ? copied : received + (makes_gradients ? unit.flat : 0);
      }
      meter_.Add(-blocks_[b].saved);
    }
    meter_.Add(-in_flight);
  }

  const ShardedPlan& plan_;
  const PredictionInputs& inputs_;
  const std::vector<BlockActivations>& blocks_;
  const Prediction& states_;
  std::vector<UnitBytes> units_;
  Meter meter_;
};

}  // namespace

int64_t PeakPrediction::Largest() const { return std::max({load, forward, backward, optimizer}); }

PeakPrediction PredictPeaks(const StrategyPlan& plan, const PredictionInputs& inputs,
                            const std::vector<BlockActivations>& blocks) {
  const Prediction states = Predict(plan, inputs);
  if (plan.sharded) return ShardedStep(*plan.sharded, inputs, blocks, states).Peaks();
  return PeaksOfDataParallel(plan.data_parallel, inputs, blocks, states);
}

}  // namespace regatta
