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
  const bool communicates = how.reduces && inputs.ranks > 1;
  int64_t whole = 0;  // all parameters are here but between steps, where owners keep theirs
  int64_t largest = 0;
  for (const ParameterSize& parameter : inputs.parameters) {
    whole += 4 * parameter.elements;
    largest = std::max(largest, 4 * parameter.elements);
  }
  meter.Add(whole + states.optimizer_bytes);
  peaks.load = meter.Take();
  // Buckets of several parameters live as long as the run; LibTorch's take the gradients' place
  // where those are views of them.
  const bool flat = communicates && (how.native || how.bucket_bytes > 0);
  if (flat) meter.Add(whole);
  const bool views = how.native && how.gradient_as_bucket_view;
  const bool moves = flat && !how.native;  // gradients become views once their bucket is full
  if (inputs.accumulation > 1 && !views) meter.Add(whole);
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
  if (communicates && how.gradients_to_owners) {
    // W whole tensors that go out, those that come in, and the sum.
    meter.Touch(2 * inputs.ranks * largest);
    peaks.backward = std::max(peaks.backward, meter.Take());
    meter.Add(states.gradient_bytes - whole + states.parameter_bytes - whole);
  }
  meter.Take();  // what was before the gradients moved
  peaks.optimizer = meter.Take();
  return peaks;
}

enum class Place { kElsewhere, kOnItsWay, kHere };

struct UnitInStep {
  UnitBytes bytes;
  Place place = Place::kElsewhere;  // of its parameters, where they are cut

  [[nodiscard]] size_t FirstBlock() const { return bytes.blocks.front(); }
  [[nodiscard]] size_t LastBlock() const { return bytes.blocks.back(); }
};

class ShardedStep {
 public:
  ShardedStep(const ShardedPlan& plan, const PredictionInputs& inputs,
              const std::vector<BlockActivations>& blocks, const Prediction& states)
      : plan_(plan), inputs_(inputs), blocks_(blocks), states_(states) {
    for (UnitBytes& bytes : MeasureUnits(plan.unit, plan.slices, inputs.parameters, inputs.ranks)) {
      units_.push_back({std::move(bytes)});
    }
  }

  PeakPrediction Peaks() {
    PeakPrediction peaks;
    meter_.Add(states_.parameter_bytes + states_.optimizer_bytes);
    if (plan_.parameters_sharded) meter_.Touch(LargestFlat());
    peaks.load = meter_.Take();
    const bool whole = plan_.AddsWholeGradients(inputs_.accumulation);
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
    for (const UnitInStep& unit : units_) largest = std::max(largest, unit.bytes.flat);
    return largest;
  }

  // The ranks' slices one after another, where that is not the order of parameters.
  int64_t Arriving(const UnitInStep& unit) const {
    return plan_.slices == SliceKind::kRows ? unit.bytes.slice * inputs_.ranks : 0;
  }

  void StartGather(UnitInStep& unit) {
    if (!plan_.parameters_sharded || unit.place != Place::kElsewhere) return;
    unit.place = Place::kOnItsWay;
    meter_.Add(unit.bytes.flat + Arriving(unit));
  }

  void AwaitGather(UnitInStep& unit) {
    if (unit.place != Place::kOnItsWay) return;
    unit.place = Place::kHere;
    meter_.Add(-Arriving(unit));
  }

  // The one that is needed now, and those after it in `order`.
  void Gather(const std::vector<UnitInStep*>& order, size_t current) {
    StartGather(*order[current]);
    AwaitGather(*order[current]);
    const size_t end = std::min(order.size(), current + 1 + static_cast<size_t>(plan_.prefetch));
    for (size_t next = current + 1; next < end; ++next) StartGather(*order[next]);
  }

  void Release(UnitInStep& unit) {
    if (unit.place == Place::kElsewhere) return;
    AwaitGather(unit);
    unit.place = Place::kElsewhere;
    meter_.Add(-unit.bytes.flat);
  }

  void Forward() {
    std::vector<UnitInStep*> order;
    for (UnitInStep& unit : units_) order.push_back(&unit);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      for (size_t i = 0; i < order.size(); ++i) {
        if (order[i]->FirstBlock() == b) Gather(order, i);
      }
      meter_.Touch(blocks_[b].saved + blocks_[b].forward_extra);
      meter_.Add(blocks_[b].saved);
      for (UnitInStep& unit : units_) {
        if (plan_.reshard_after_forward && unit.LastBlock() == b) Release(unit);
      }
    }
  }

  void Backward(bool makes_gradients, bool keeps_slices) {
    std::vector<UnitInStep*> order;
    for (UnitInStep& unit : units_) order.push_back(&unit);
    std::sort(order.begin(), order.end(), [](const UnitInStep* a, const UnitInStep* b) {
      return a->LastBlock() > b->LastBlock();
    });
    int64_t in_flight = 0;
    for (size_t b = blocks_.size(); b-- > 0;) {
      for (size_t i = 0; i < order.size(); ++i) {
        if (order[i]->LastBlock() != b) continue;
        Gather(order, i);
        if (makes_gradients) meter_.Add(order[i]->bytes.flat);
      }
      meter_.Touch(blocks_[b].backward_extra);
      for (UnitInStep& unit : units_) {
        if (unit.FirstBlock() != b) continue;
        meter_.Touch(
            unit.bytes
                .largest_parameter);  // a gradient that autograd has made, before it is placed
        Release(unit);
        if (keeps_slices) meter_.Add(unit.bytes.slice);
        meter_.Add(-std::exchange(in_flight, 0));
        if (inputs_.ranks == 1) {
          in_flight = makes_gradients ? unit.bytes.flat : 0;
          continue;
        }
        // The buffer until it is sent, and what comes from others.
        const int64_t copied = Arriving(unit);
        const int64_t received =
            plan_.emulated_reduce_scatter ? 0 : unit.bytes.slice * (inputs_.ranks - 1);
        meter_.Add(copied + received);
        if (makes_gradients && copied > 0) meter_.Add(-unit.bytes.flat);
        in_flight = copied > 0 ? copied : received + (makes_gradients ? unit.bytes.flat : 0);
      }
      meter_.Add(-blocks_[b].saved);
    }
    meter_.Add(-in_flight);
  }

  const ShardedPlan& plan_;
  const PredictionInputs& inputs_;
  const std::vector<BlockActivations>& blocks_;
  const Prediction& states_;
  std::vector<UnitInStep> units_;
  Meter meter_;
};

// One rank's step, action by action.
class PipelineStep {
 public:
  PipelineStep(const PipelinePlan& plan, const PredictionInputs& inputs,
               const std::vector<BlockActivations>& blocks, std::vector<int> firsts)
      : plan_(plan),
        inputs_(inputs),
        blocks_(blocks),
        firsts_(std::move(firsts)),
        gradients_(BytesByBlock(inputs.parameters, blocks.size())),
        has_gradients_(blocks.size(), inputs.accumulation > 1) {
    firsts_.push_back(static_cast<int>(blocks.size()));
    const int64_t parts = int64_t{plan.replicas} * plan.shape.micro_batches;
    const int64_t rows = (inputs.batch_rows + parts - 1) / parts;
    activation_ = rows * inputs.padded_length * inputs.width * int64_t{sizeof(float)};
  }

  PeakPrediction Peaks(const std::vector<Action>& program, const Prediction& states) {
    PeakPrediction peaks;
    meter_.Add(states.parameter_bytes + states.optimizer_bytes);
    peaks.load = meter_.Take();
    if (inputs_.accumulation > 1) meter_.Add(states.gradient_bytes);
    for (const Action& action : program) {
      Do(action);
      const bool forward = action.kind == ActionKind::kForward;
      int64_t& peak = forward ? peaks.forward : peaks.backward;
      peak = std::max(peak, meter_.Take());
    }
    peaks.optimizer = meter_.Take();
    return peaks;
  }

 private:
  void Do(const Action& action) {
    const auto stage = static_cast<size_t>(action.stage);
    const bool first = action.stage == 0;
    const bool last = action.stage + 1 == plan_.shape.Stages();
    switch (action.kind) {
      case ActionKind::kReceiveActivation:
      case ActionKind::kReceiveGradient:
        return meter_.Add(activation_);
      case ActionKind::kForward:
        for (auto b = BlockAt(stage); b < BlockAt(stage + 1); ++b) {
          meter_.Touch(Saved(b) + blocks_[b].forward_extra);
          meter_.Add(Saved(b));
        }
        if (!last) meter_.Add(activation_);
        return;
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        for (auto b = BlockAt(stage + 1); b-- > BlockAt(stage);) {
          meter_.Touch(blocks_[b].backward_extra);
          if (!has_gradients_[b]) meter_.Add(gradients_[b]);  // later ones are added in place
          has_gradients_[b] = true;
          if (action.kind == ActionKind::kBackward) meter_.Add(-Saved(b));
        }
        if (!last) meter_.Add(-2 * activation_);  // output and its gradient
        if (!first) meter_.Add(activation_);      // the input's gradient
        return;
      case ActionKind::kBackwardWeight:
        for (auto b = BlockAt(stage); b < BlockAt(stage + 1); ++b) meter_.Add(-Saved(b));
        return;
      case ActionKind::kSendGradient:
        return meter_.Add(-2 * activation_);  // the input and its gradient
      case ActionKind::kSendActivation:
        return;
    }
  }

  [[nodiscard]] size_t BlockAt(size_t stage) const {
    return static_cast<size_t>(firsts_.at(stage));
  }

  [[nodiscard]] int64_t Saved(size_t block) const {
    return blocks_[block].saved - blocks_[block].autograds;
  }

  const PipelinePlan& plan_;
  const PredictionInputs& inputs_;
  const std::vector<BlockActivations>& blocks_;
  std::vector<int> firsts_;  // and the number of blocks
  const std::vector<int64_t> gradients_;
  std::vector<bool> has_gradients_;
  int64_t activation_ = 0;
  Meter meter_;
};

PeakPrediction PeaksOfPipeline(const StrategyPlan& plan, PredictionInputs inputs,
                               const std::vector<BlockActivations>& blocks) {
  const PipelinePlan& pipeline = *plan.pipeline;
  const PipelineShape& shape = pipeline.shape;
  const auto firsts = PredictStages(pipeline, inputs.parameters);
  if (!firsts) return {};
  const auto program = std::get<Program>(
      PlanProgram(pipeline.policy, shape, pipeline.waits_at_once, pipeline.fusing));
  PeakPrediction most;
  for (inputs.rank = 0; inputs.rank < shape.ranks; ++inputs.rank) {
    const PeakPrediction rank =
        PipelineStep(pipeline, inputs, blocks, *firsts)
            .Peaks(program[static_cast<size_t>(inputs.rank)], Predict(plan, inputs));
    if (rank.Largest() > most.Largest()) most = rank;
  }
  return most;
}

}  // namespace

int64_t PeakPrediction::Largest() const { return std::max({load, forward, backward, optimizer}); }

std::vector<BlockActivations> Recomputed(std::vector<BlockActivations> blocks,
                                         int64_t input_bytes) {
  for (size_t b = 1; b + 1 < blocks.size(); ++b) {
    BlockActivations& block = blocks[b];
    block.backward_extra = block.saved + std::max(block.forward_extra, block.backward_extra);
    block.saved = input_bytes;
    block.autograds = 0;
  }
  return blocks;
}

PeakPrediction PredictPeaks(const StrategyPlan& plan, const PredictionInputs& inputs,
                            const std::vector<BlockActivations>& blocks) {
  if (plan.pipeline) return PeaksOfPipeline(plan, inputs, blocks);
  const Prediction states = Predict(plan, inputs);
  if (plan.sharded) return ShardedStep(*plan.sharded, inputs, blocks, states).Peaks();
  return PeaksOfDataParallel(plan.data_parallel, inputs, blocks, states);
}

}  // namespace regatta
