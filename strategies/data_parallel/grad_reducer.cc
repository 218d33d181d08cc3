#include "strategies/data_parallel/grad_reducer.h"

#include <chrono>
#include <optional>

#include "strategies/data_parallel/gradient_hooks.h"
#include "strategies/data_parallel/native_reducer.h"
#include "strategies/observation.h"
#include "strategies/plan/buckets.h"

namespace regatta {
namespace {

class NoReducer : public GradReducer {
 public:
  void Arm() override {}
  Reduction Finish() override { return {}; }
};

// Buckets of gradients, launched in one order on all ranks, whenever and however the plan says. A
// bucket of several parameters is a flat tensor that lives as long as the reducer; a gradient that
// is placed in it becomes a view of it, so that nothing is copied back and the optimizer reads the
// mean where it was summed.
class BucketReducer : public GradReducer {
 public:
  BucketReducer(const DataParallelPlan& plan, std::vector<NamedTensor> parameters,
                Collectives& world)
      : plan_(plan),
        parameters_(std::move(parameters)),
        world_(world),
        hooks_(parameters_, [this](size_t i) { OnGradient(i); }),
        places_(parameters_.size()) {
    MakeBuckets(BucketOrder::kReversed);
  }

  // Afterwards gradients are views of buckets until ApplyGradients drops them: no bucket is in use.
  void Begin(size_t batches) override {
    flushes_ = static_cast<int64_t>(batches) < plan_.flushes_below;
    const auto order = flushes_ ? BucketOrder::kRegistration : BucketOrder::kReversed;
    if (order != order_) MakeBuckets(order);
  }

  void Arm() override { hooks_.Arm(); }

  Reduction Finish() override {
    const at::NoGradGuard no_grad;
    hooks_.Check();
    for (Bucket& bucket : buckets_) bucket.missing = 0;  // what hooks did not announce is there too
    double ignored = 0;                                  // all of Finish is waiting
    LaunchFullBuckets(ignored);
    for (Bucket& bucket : buckets_) Await(bucket);
    next_ = 0;
    for (Bucket& bucket : buckets_) bucket.missing = bucket.members.size();
    return std::exchange(reduction_, {});
  }

 private:
  struct Bucket {
    std::vector<size_t> members;
    at::Tensor flat;  // undefined: one member, whose gradient is reduced where it lies
    size_t missing = 0;
    at::Tensor sent;
    std::optional<PendingWork> work;
  };
  struct Place {
    size_t bucket = 0;
    at::Tensor view;  // of the bucket's flat tensor
  };

  void MakeBuckets(BucketOrder order) {
    std::vector<int64_t> bytes;
    for (const NamedTensor& parameter : parameters_) {
      bytes.push_back(static_cast<int64_t>(parameter.tensor.nbytes()));
    }
    buckets_.clear();
    places_.assign(parameters_.size(), {});
    for (std::vector<size_t>& members :
         AssignBuckets(bytes, plan_.bucket_bytes, plan_.bucket_bytes, order)) {
      AddBucket(std::move(members));
    }
    order_ = order;
  }

  void AddBucket(std::vector<size_t> members) {
    Bucket bucket;
    int64_t elements = 0;
    for (const size_t i : members) elements += parameters_[i].tensor.numel();
    if (members.size() > 1)
      bucket.flat = at::empty({elements}, parameters_[0].tensor.options().requires_grad(false));
    int64_t start = 0;
    for (const size_t i : members) {
      const at::Tensor& parameter = parameters_[i].tensor;
      places_[i].bucket = buckets_.size();
      if (bucket.flat.defined()) {
        places_[i].view = bucket.flat.narrow(0, start, parameter.numel()).view(parameter.sizes());
      }
      start += parameter.numel();
    }
    bucket.missing = members.size();
    bucket.members = std::move(members);
    buckets_.push_back(std::move(bucket));
  }

  // Inside backward.
  void OnGradient(size_t i) {
    --buckets_[places_[i].bucket].missing;
    if (plan_.launch != LaunchWhen::kGradientsReady || flushes_) return;
    const size_t launched = next_;
    LaunchFullBuckets(reduction_.waited_in_backward_seconds);
    if (hooks_.Missing() > 0) reduction_.launched_early += static_cast<int64_t>(next_ - launched);
  }

  // In order: a bucket that is full early waits for those before it, as on every other rank.
  void LaunchFullBuckets(double& waited_seconds) {
    const at::NoGradGuard no_grad;
    for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
      Bucket& bucket = buckets_[next_];
      for (const size_t i : bucket.members) PlaceGradient(i);
      bucket.sent =
          bucket.flat.defined() ? bucket.flat : parameters_[bucket.members[0]].tensor.grad();
      const bool at_once = plan_.wait == WaitWhen::kAtOnce;
      bucket.work =
          world_.AllReduceSum(bucket.sent, at_once ? Launch::kOnCallersStream : Launch::kBeside);
      if (!at_once) continue;
      const ScopedSeconds scope(waited_seconds);
      Await(bucket);
    }
  }

  void PlaceGradient(size_t i) {
    const at::Tensor& view = places_[i].view;
    if (!view.defined()) return;
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    view.copy_(gradient);
    gradient = view;
  }

  void Await(Bucket& bucket) {
    if (!bucket.work) return;
    bucket.work->Wait();
    bucket.sent.div_(world_.Size());
    bucket.work.reset();
    bucket.sent.reset();
  }

  const DataParallelPlan plan_;
  const std::vector<NamedTensor> parameters_;
  Collectives& world_;
  GradientHooks hooks_;
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  // by parameter
  BucketOrder order_ = BucketOrder::kReversed;
  bool flushes_ = false;  // the step under way
  size_t next_ = 0;       // bucket to be launched
  Reduction reduction_;
};

// Each gradient to the rank that owns its parameter, by a reduce-scatter of W whole tensors of
// which the owner's is the gradient and the others are zero, as the study does it: W times the
// bytes of a reduction, and as many of memory.
class ToOwners : public GradReducer {
 public:
  ToOwners(std::vector<NamedTensor> parameters, std::vector<int> owners, Collectives& world)
      : parameters_(std::move(parameters)),
        owners_(std::move(owners)),
        world_(world),
        hooks_(parameters_, {}) {}

  void Arm() override { hooks_.Arm(); }

  Reduction Finish() override {
    const at::NoGradGuard no_grad;
    hooks_.Check();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
      const at::Tensor all = at::zeros({world_.Size(), gradient.numel()}, gradient.options());
      all[owners_[i]].copy_(gradient.view({-1}));
      const at::Tensor mine = at::empty({gradient.numel()}, gradient.options());
      world_.ReduceScatterSum(all, mine, ReduceScatter::kDirect).Wait();
      if (owners_[i] == world_.Rank()) {
        gradient.copy_(mine.view(gradient.sizes())).div_(world_.Size());
      } else {
        gradient.reset();
      }
    }
    return {};
  }

 private:
  const std::vector<NamedTensor> parameters_;
  const std::vector<int> owners_;
  Collectives& world_;
  GradientHooks hooks_;
};

}  // namespace

std::unique_ptr<GradReducer> MakeGradReducer(const DataParallelPlan& plan,
                                             std::vector<NamedTensor> parameters,
                                             const std::vector<int>& owners, Collectives* world) {
  // One rank alone has nothing to add up, and no group.
  if (!plan.reduces || world == nullptr) return std::make_unique<NoReducer>();
  if (plan.gradients_to_owners) {
    return std::make_unique<ToOwners>(std::move(parameters), owners, *world);
  }
  if (plan.native) return MakeNativeReducer(plan, std::move(parameters), *world);
  return std::make_unique<BucketReducer>(plan, std::move(parameters), *world);
}

}  // namespace regatta
