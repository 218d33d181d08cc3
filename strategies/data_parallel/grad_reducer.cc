#include "strategies/data_parallel/grad_reducer.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>

#include "strategies/plan/buckets.h"

namespace regatta {
namespace {

class NoReducer : public GradReducer {
 public:
  void Arm() override {}
  void Finish() override {}
};

// Called by backward after a parameter's gradient has been added up, on backward's thread, which on
// a CPU is the caller's.
class GradientReady : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit GradientReady(std::function<void()> then) : then_(std::move(then)) {}
  void operator()(const torch::autograd::Variable&) override { then_(); }

 private:
  const std::function<void()> then_;
};

// Buckets of gradients, launched in one order on all ranks, whenever and however the plan says. A
// bucket of several parameters is a flat tensor that lives as long as the reducer; a gradient that
// is placed in it becomes a view of it, so that nothing is copied back and the optimizer reads the
// mean where it was summed.
class BucketReducer : public GradReducer {
 public:
  BucketReducer(const DataParallelPlan& plan, std::vector<NamedTensor> parameters,
                Collectives& world)
      : plan_(plan), parameters_(std::move(parameters)), world_(world) {
    std::vector<int64_t> bytes;
    for (const NamedTensor& parameter : parameters_) {
      bytes.push_back(static_cast<int64_t>(parameter.tensor.nbytes()));
    }
    places_.resize(parameters_.size());
    for (std::vector<size_t>& members : AssignBuckets(bytes, plan_.bucket_bytes)) {
      AddBucket(std::move(members));
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          parameters_[i].tensor, std::make_unique<GradientReady>([this, i] { OnGradient(i); }));
    }
  }

  ~BucketReducer() override {
    for (const NamedTensor& parameter : parameters_) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
    }
  }
  BucketReducer(const BucketReducer&) = delete;
  BucketReducer& operator=(const BucketReducer&) = delete;

  void Arm() override { armed_ = true; }

  void Finish() override {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      TORCH_CHECK(!armed_ || places_[i].ready, "parameter ", parameters_[i].name,
                  " got no gradient in the step's last backward; every parameter must take part");
    }
    armed_ = false;
    for (Bucket& bucket : buckets_) bucket.missing = 0;  // what hooks did not announce is there too
    LaunchFullBuckets();
    for (Bucket& bucket : buckets_) Await(bucket);
    next_ = 0;
    for (Bucket& bucket : buckets_) bucket.missing = bucket.members.size();
    for (Place& place : places_) place.ready = false;
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
    bool ready = false;
  };

  void AddBucket(std::vector<size_t> members) {
    Bucket bucket;
    int64_t elements = 0;
    for (const size_t i : members) elements += parameters_[i].tensor.numel();
    if (members.size() > 1) bucket.flat = at::empty({elements}, at::kFloat);
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

  void OnGradient(size_t i) {
    if (!armed_) return;  // an earlier batch of the step: it only adds up
    Place& place = places_[i];
    TORCH_CHECK(!place.ready, "parameter ", parameters_[i].name,
                " got its gradient twice in one backward");
    place.ready = true;
    --buckets_[place.bucket].missing;
    if (plan_.launch == LaunchWhen::kGradientsReady) LaunchFullBuckets();
  }

  // In order: a bucket that is full early waits for those before it, as on every other rank.
  void LaunchFullBuckets() {
    const at::NoGradGuard no_grad;
    for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
      Bucket& bucket = buckets_[next_];
      for (const size_t i : bucket.members) PlaceGradient(i);
      bucket.sent =
          bucket.flat.defined() ? bucket.flat : parameters_[bucket.members[0]].tensor.grad();
      const bool at_once = plan_.wait == WaitWhen::kAtOnce;
      bucket.work =
          world_.AllReduceSum(bucket.sent, at_once ? Launch::kOnCallersStream : Launch::kBeside);
      if (at_once) Await(bucket);
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
  std::vector<Bucket> buckets_;
  std::vector<Place> places_;  // by parameter
  size_t next_ = 0;            // bucket to be launched
  bool armed_ = false;
};

}  // namespace

std::unique_ptr<GradReducer> MakeGradReducer(const DataParallelPlan& plan,
                                             std::vector<NamedTensor> parameters,
                                             Collectives* world) {
  // One rank alone has nothing to add up, and no group.
  if (!plan.reduces || world == nullptr) return std::make_unique<NoReducer>();
  return std::make_unique<BucketReducer>(plan, std::move(parameters), *world);
}

}  // namespace regatta
