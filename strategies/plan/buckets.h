#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace regatta {

// kReversed: of registration, the order in which backward finishes parameters.
enum class BucketOrder { kReversed, kRegistration };

// Which parameters share an all-reduce: lists of indices, in the order in which the buckets are
// launched; a bucket is closed once it holds at least `bucket_bytes` (0: each parameter alone), the
// first one once it holds `first_bucket_bytes`, as c10d::compute_bucket_assignment_by_size does it.
[[nodiscard]] std::vector<std::vector<size_t>> AssignBuckets(
    const std::vector<int64_t>& parameter_bytes, int64_t bucket_bytes, int64_t first_bucket_bytes,
    BucketOrder order = BucketOrder::kReversed);

}  // namespace regatta
