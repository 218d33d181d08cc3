#include "worker/data/shard.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "worker/models/fixture_recipe.h"
#include "worker/shapes/safetensors.h"

namespace regatta {
namespace {

constexpr uint64_t kSyntheticLabels = 5;
constexpr int32_t kFirstWord = 16;  // ids below are special or the labels' own words
constexpr int32_t kFirstLabelWord = 4;

template <typename T>
std::span<const T> ReadVector(const SafetensorsFile& file, const char* name, const char* dtype) {
  const SafetensorsFile::Entry& entry = file.Get(name);
  TORCH_CHECK(entry.dtype == dtype && entry.shape.size() == 1, file.Path(), ": tensor '", name,
              "' is ", entry.dtype, " of ", entry.shape.size(), " dimensions; ", dtype,
              " of 1 is right for a shard of rows");
  TORCH_CHECK(reinterpret_cast<uintptr_t>(entry.data) % alignof(T) == 0, file.Path(), ": tensor '",
              name, "' does not begin at a multiple of ", alignof(T), " bytes");
  return {reinterpret_cast<const T*>(entry.data), entry.bytes / sizeof(T)};
}

int32_t EndToken(const SafetensorsFile& file) {
  const auto found = file.Metadata().find("end_token");
  return found == file.Metadata().end()
             ? -1
             : static_cast<int32_t>(std::strtol(found->second.c_str(), nullptr, 10));
}

}  // namespace

Shard ReadShard(const std::string& path, const ShardLimits& limits, const ModelLimits& model) {
  const SafetensorsFile file(path);
  const auto offsets = ReadVector<int64_t>(file, "offsets", "I64");
  const auto labels = ReadVector<int64_t>(file, "labels", "I64");
  const auto ids = ReadVector<int32_t>(file, "input_ids", "I32");
  const int32_t end_token = EndToken(file);
  const auto stored_rows = static_cast<int64_t>(labels.size());
  TORCH_CHECK(stored_rows > 0, path, " holds no rows");
  TORCH_CHECK(offsets.size() == labels.size() + 1 && offsets.front() == 0 &&
                  offsets.back() == static_cast<int64_t>(ids.size()),
              path, ": offsets do not fit ", labels.size(), " rows of ", ids.size(), " tokens");
  const int64_t rows = limits.rows < 0 ? stored_rows : limits.rows;
  TORCH_CHECK(rows <= stored_rows, path, " holds ", stored_rows, " rows; the experiment asks for ",
              rows);
  Shard shard;
  for (int64_t row = 0; row < rows; ++row) {
    const auto i = static_cast<size_t>(row);
    const int64_t stored = offsets[i + 1] - offsets[i];
    TORCH_CHECK(stored > 0 && offsets[i + 1] <= offsets.back(), path, ": row ", row, " has ",
                stored, " tokens");
    TORCH_CHECK(labels[i] >= 0 && labels[i] < model.labels, path, ": row ", row, " has label ",
                labels[i], "; the model has ", model.labels, " labels, counted from 0");
    const int64_t kept = limits.max_length > 0 ? std::min(stored, limits.max_length) : stored;
    TORCH_CHECK(kept <= model.max_positions, path, ": row ", row, " has ", kept,
                " tokens; the model has ", model.max_positions,
                " positions: set dataset.max_length");
    const auto first = ids.begin() + offsets[i];
    shard.ids.insert(shard.ids.end(), first, first + kept);
    if (kept < stored && end_token >= 0 && first[stored - 1] == end_token)
      shard.ids.back() = end_token;
    for (auto id = shard.ids.end() - kept; id != shard.ids.end(); ++id) {
      TORCH_CHECK(*id >= 0 && *id < model.vocab_size, path, ": row ", row, " has token ", *id,
                  "; the model's vocabulary has ", model.vocab_size);
    }
    shard.labels.push_back(labels[i]);
    shard.offsets.push_back(static_cast<int64_t>(shard.ids.size()));
  }
  return shard;
}

Shard MakeSyntheticShard(const std::string& name, int64_t rows, int64_t max_length,
                         const ModelLimits& model) {
  TORCH_CHECK(model.vocab_size > kFirstWord, "synthetic rows need a vocabulary of more than ",
              kFirstWord, "; the model's has ", model.vocab_size);
  TORCH_CHECK(model.labels >= static_cast<int64_t>(kSyntheticLabels), "synthetic rows have ",
              kSyntheticLabels, " labels; the model has ", model.labels);
  TORCH_CHECK(max_length <= model.max_positions, "synthetic rows of ", max_length,
              " tokens; the model has ", model.max_positions, " positions");
  const FixtureStream row_stream(name + ".rows");
  const FixtureStream token_stream(name + ".tokens");
  const auto words = static_cast<uint64_t>(model.vocab_size - kFirstWord);
  const auto longest = static_cast<uint64_t>(max_length);
  const uint64_t shortest = longest / 4;
  Shard shard;
  for (uint64_t row = 0; row < static_cast<uint64_t>(rows); ++row) {
    const uint64_t label = row_stream.Number(row) % kSyntheticLabels;
    const uint64_t length =
        shortest + row_stream.Number(static_cast<uint64_t>(rows) + row) % (longest - shortest + 1);
    for (uint64_t i = 0; i < length; ++i) {
      const uint64_t number = token_stream.Number(row * longest + i);
      const int32_t word = number % 5 == 0
                               ? kFirstLabelWord + static_cast<int32_t>(label)
                               : kFirstWord + static_cast<int32_t>((number >> 8) % words);
      shard.ids.push_back(i == 0 ? 1 : word);
    }
    shard.labels.push_back(static_cast<int64_t>(label));
    shard.offsets.push_back(static_cast<int64_t>(shard.ids.size()));
  }
  return shard;
}

Shard LoadSplit(const decltype(RunSpec::dataset)& spec, Split split, const ModelLimits& model) {
  const bool train = split == Split::kTrain;
  const int64_t rows = train ? (spec.train_rows == 0 ? -1 : spec.train_rows) : spec.eval_rows;
  if (rows == 0) return {};
  if (spec.train_file.empty()) {
    return MakeSyntheticShard(spec.stream + (train ? "/train" : "/eval"), rows, spec.max_length,
                              model);
  }
  return ReadShard(train ? spec.train_file : spec.eval_file, {rows, spec.max_length}, model);
}

}  // namespace regatta
