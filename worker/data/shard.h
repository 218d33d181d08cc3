#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/client/run_spec.h"
#include "worker/models/model_table.h"

namespace regatta {

// Tokenized rows of one split, back to back: row i is ids[offsets[i], offsets[i + 1]).
struct Shard {
  std::vector<int64_t> offsets = {0};
  std::vector<int32_t> ids;
  std::vector<int64_t> labels;

  [[nodiscard]] int64_t Rows() const { return static_cast<int64_t>(labels.size()); }
  [[nodiscard]] int64_t Length(int64_t row) const {
    return offsets[static_cast<size_t>(row) + 1] - offsets[static_cast<size_t>(row)];
  }
};

struct ShardLimits {
  int64_t rows = -1;       // the first so many; negative: all
  int64_t max_length = 0;  // tokens of a row at most; 0: as stored
};

// Reads a prepared shard (docs/material.md). Ids, labels, offsets and lengths are checked against
// the model; a longer row keeps its first tokens and, where the file names an end token, that.
// Throws naming the file, the row and the value.
[[nodiscard]] Shard ReadShard(const std::string& file, const ShardLimits& limits,
                              const ModelLimits& model);

// Rows of the fixture recipe: label Number % 5, length in [max_length / 4, max_length], first token
// 1, a fifth of the others the label's own word (4 + label), the rest 16 and up. Stream name:
// NAME/SPLIT.
[[nodiscard]] Shard MakeSyntheticShard(const std::string& name, int64_t rows, int64_t max_length,
                                       const ModelLimits& model);

enum class Split { kTrain, kEval };

// The rows that a run trains or evaluates on. No evaluation wanted: no rows.
[[nodiscard]] Shard LoadSplit(const decltype(RunSpec::dataset)& spec, Split split,
                              const ModelLimits& model);

}  // namespace regatta
