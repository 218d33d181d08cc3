#include "strategies/plan/buckets.h"

namespace regatta {

std::vector<std::vector<size_t>> AssignBuckets(const std::vector<int64_t>& parameter_bytes,
                                               int64_t bucket_bytes) {
  std::vector<std::vector<size_t>> buckets;
  int64_t filled = bucket_bytes;  // the first parameter opens a bucket
  for (size_t i = parameter_bytes.size(); i-- > 0;) {
    if (filled >= bucket_bytes) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(i);
    filled += parameter_bytes[i];
  }
  return buckets;
}

}  // namespace regatta
