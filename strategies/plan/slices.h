#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace regatta {

// What must be known of a parameter before there is one.
struct ParameterSize {
  int64_t elements = 0;
  int64_t rows = 0;            // extent of its first dimension
  std::vector<size_t> blocks;  // of the model, that use it
};

// What is cut among ranks together: parameters of some blocks, gathered at once.
struct UnitMembers {
  std::vector<size_t> blocks;      // ascending
  std::vector<size_t> parameters;  // indices, in registration order
};

// How a model is cut into units: each block alone; all blocks together; or as FSDP2 with each inner
// layer wrapped, the first and the last block together being the root.
enum class UnitKind { kBlock, kModel, kRootAndLayers };

// In the order in which forward comes to them. Blocks that share a parameter are in one unit;
// blocks without parameters are in none.
[[nodiscard]] std::vector<UnitMembers> MakeUnits(UnitKind kind,
                                                 const std::vector<ParameterSize>& parameters);

// A run of one parameter's elements within a rank's slice.
struct Segment {
  size_t parameter = 0;  // place within the unit
  int64_t begin = 0;     // element of the parameter
  int64_t elements = 0;
  int64_t offset = 0;  // element of the slice
};

// Who owns what of a unit. All slices have the same size, padded at their end.
struct SlicePlan {
  int64_t slice_elements = 0;
  std::vector<std::vector<Segment>> of_rank;
};

// kElements: the parameters one after another, cut into equal parts wherever that falls. kRows:
// each parameter by itself along its first dimension, ceil(rows / ranks) a rank, so that the last
// ranks may have none (torch.chunk, as FSDP2 does it).
enum class SliceKind { kElements, kRows };

[[nodiscard]] SlicePlan PlanSlices(SliceKind kind, const std::vector<ParameterSize>& members,
                                   int ranks);

// What a unit takes, in fp32. Padding counts where slices are of elements: there it is part of the
// flat buffer.
struct UnitBytes {
  std::vector<size_t> blocks;    // ascending
  int64_t flat = 0;              // its parameters, or their gradients
  int64_t slice = 0;             // one rank's, padded
  std::vector<int64_t> of_rank;  // its part of the parameters, without the padding of rows
  int64_t largest_parameter = 0;
};

// Of each unit, in the order of MakeUnits.
[[nodiscard]] std::vector<UnitBytes> MeasureUnits(UnitKind kind, SliceKind slices,
                                                  const std::vector<ParameterSize>& parameters,
                                                  int ranks);

// How parameters find the one rank that updates them. kBySize: largest first, each to the rank that
// has least, as torch.distributed.optim.ZeroRedundancyOptimizer; kRuns: equally many to each, in
// registration order, the first ranks one more.
enum class Owners { kNone, kBySize, kRuns };

// The rank of each parameter; empty for kNone.
[[nodiscard]] std::vector<int> AssignOwners(Owners how, const std::vector<int64_t>& elements,
                                            int ranks);

}  // namespace regatta
