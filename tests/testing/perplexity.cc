// perplexity MODEL_FOLDER SHARD ROWS: how well a Llama folder predicts the next token of the first
// rows of a shard, through its tied head. Wrong rotary order or heads still read as English, but
// not here. Prints one JSON object.

#include <ATen/Parallel.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <sstream>

#include "strategies/weights.h"
#include "worker/data/loader.h"
#include "worker/data/shard.h"
#include "worker/metrics/counting_allocator.h"
#include "worker/metrics/process.h"
#include "worker/models/model_table.h"
#include "worker/shapes/llama_shapes.h"

namespace regatta {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Sum of -log p over the tokens after the first, and how many they are.
std::pair<double, int64_t> RowLoss(const Model& model, double norm_eps, Batch batch) {
  const std::vector<NamedTensor> parameters = ParametersOf(model);
  const at::Tensor embedding = parameters.front().tensor;
  const at::Tensor norm = model.blocks.back()->Parameters().front().tensor;
  model.prepare(batch);
  at::Tensor x;
  for (size_t i = 0; i + 1 < model.blocks.size(); ++i) x = model.blocks[i]->Forward(x, batch);
  const at::Tensor logits =
      at::linear(at::rms_norm(x, norm.sizes(), norm, norm_eps), embedding).squeeze(0);
  const int64_t predicted = batch.ids.size(1) - 1;
  const at::Tensor loss =
      at::cross_entropy_loss(logits.narrow(0, 0, predicted),
                             batch.ids.squeeze(0).narrow(0, 1, predicted), {}, at::Reduction::Sum);
  return {loss.item<double>(), predicted};
}

int Measure(const std::string& folder, const std::string& shard_file, int64_t rows) {
  InstallCountingAllocator();
  at::set_num_threads(2);
  const at::NoGradGuard no_grad;
  const int64_t rss_before = PeakRssBytes();
  const std::string config = ReadFile(folder + "/config.json");
  const BuiltModel built = BuildModel({"", folder, config, true});
  LoadWeights(built.model);
  int64_t parameter_bytes = 0;
  for (const NamedTensor& parameter : ParametersOf(built.model)) {
    parameter_bytes += static_cast<int64_t>(parameter.tensor.nbytes());
  }
  const int64_t rss_loaded = PeakRssBytes() - rss_before;
  const int64_t peak_loaded = PeakTensorBytes();
  const auto llama = std::get<LlamaConfig>(ReadLlamaConfig(nlohmann::json::parse(config)));
  const Shard shard = ReadShard(shard_file, {rows, 0}, built.limits);
  double sum = 0;
  int64_t count = 0;
  for (int64_t row = 0; row < shard.Rows(); ++row) {
    if (shard.Length(row) < 2) continue;
    const auto [loss, tokens] =
        RowLoss(built.model, llama.norm_eps, Collate(shard, {row}, 0, built.limits.pad_id));
    sum += loss;
    count += tokens;
  }
  std::printf(
      "{\"perplexity\": %.4f, \"tokens\": %ld, \"parameter_bytes\": %ld, "
      "\"peak_tensor_bytes_loaded\": %ld, \"rss_bytes_loaded\": %ld}\n",
      std::exp(sum / static_cast<double>(count)), static_cast<long>(count),
      static_cast<long>(parameter_bytes), static_cast<long>(peak_loaded),
      static_cast<long>(rss_loaded));
  return 0;
}

}  // namespace
}  // namespace regatta

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: perplexity MODEL_FOLDER SHARD ROWS\n");
    return 2;
  }
  try {
    return regatta::Measure(argv[1], argv[2], std::atol(argv[3]));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "perplexity: %s\n", e.what());
    return 1;
  }
}
