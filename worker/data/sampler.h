#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace regatta {

// The order of one epoch's rows over all ranks. "distributed" and "length_grouped" (which is
// grouped afterwards): torch.randperm with a generator seeded seed + epoch, what
// torch.utils.data.DistributedSampler(shuffle=True) draws; "sequential": the file's.
[[nodiscard]] std::vector<int64_t> GlobalOrder(const std::string& sampler, int64_t rows,
                                               int64_t seed, int64_t epoch);

// Groups a shuffled order so that rows of a batch are about equally long: cut into pieces of up to
// 50 batches, each sorted by length, longest first; the longest row of all comes first, so that
// memory that does not suffice shows at once. As get_length_grouped_indices of transformers'
// LengthGroupedSampler. `lengths` by row.
[[nodiscard]] std::vector<int64_t> GroupByLength(std::vector<int64_t> order,
                                                 const std::vector<int64_t>& lengths,
                                                 int64_t batch_size);

// This rank's rows of global batch `batch` = order[batch * batch_size, ...): every ranks-th,
// beginning with its own number. With equal parts these are DistributedSampler's. A short last
// batch is not filled up with repeated rows, so that every row counts once; a rank may then have
// fewer rows than others, or none.
[[nodiscard]] std::vector<int64_t> RankRows(const std::vector<int64_t>& order, int64_t batch,
                                            int64_t batch_size, int rank, int ranks);

}  // namespace regatta
