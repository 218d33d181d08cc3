#include "strategies/plan/buckets.h"

namespace regatta {

std::vector<std::vector<size_t>> AssignBuckets(const std::vector<int64_t>& parameter_bytes,
                                               int64_t bucket_bytes, int64_t first_bucket_bytes,
                                               BucketOrder order) {
  std::vector<std::vector<size_t>> buckets;
  int64_t left = 0;  // until the last bucket is closed
  const size_t count = parameter_bytes.size();
  for (size_t n = 0; n < count; ++n) {
    const size_t i = order == BucketOrder::kReversed ? count - 1 - n : n;
    if (left <= 0) {
      left = buckets.empty() ? first_bucket_bytes : bucket_bytes;
      buckets.emplace_back();
    }
    buckets.back().push_back(i);
    left -= parameter_bytes[i];
  }
  return buckets;
}

}  // namespace regatta
