#pragma once

#include <string>

#include "worker/client/run_spec.h"
#include "worker/data/shard.h"
#include "worker/models/model_table.h"

namespace regatta {

// The nano DistilBERT and its rows, as the goldens were made with.
inline constexpr const char* kNanoConfig =
    R"({"model_type": "distilbert", "dim": 64, "n_heads": 4, "n_layers": 4, "hidden_dim": 256, "vocab_size": 512,
        "max_position_embeddings": 64, "pad_token_id": 0, "num_labels": 5})";
inline constexpr const char* kNanoLlamaConfig =
    R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512, "rope_theta": 100000.0,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "pad_token_id": 2, "num_labels": 5,
        "tie_word_embeddings": true, "attention_dropout": 0.1})";
inline constexpr const char* kMiniConfig =
    R"({"model_type": "distilbert", "dim": 384, "n_heads": 12, "n_layers": 6, "hidden_dim": 1536, "vocab_size": 8192,
        "max_position_embeddings": 128, "pad_token_id": 0, "num_labels": 5})";

// As the golden runs: global batch 8, rows in file order, padded to 32.
inline RunSpec NanoSpec() {
  RunSpec spec;
  spec.strategy.name = "single";
  spec.model = {"bert_nano", "", kNanoConfig, false};
  spec.dataset.name = "synthetic";
  spec.dataset.max_length = 32;
  spec.dataset.train_rows = 32;
  spec.dataset.eval_rows = 16;
  spec.dataset.stream = "data_bert_nano";
  spec.optimizer = {"sgd", "single", 0.05, 0.9, 0.999, 1e-8, 0.01, 0, "none"};
  spec.batch_size = 8;
  spec.steps = 6;
  spec.sampler = "sequential";
  spec.padded_length = 32;
  return spec;
}

// The same for the nano Llama.
inline RunSpec NanoLlamaSpec() {
  RunSpec spec = NanoSpec();
  spec.model = {"llama_nano", "", kNanoLlamaConfig, false};
  spec.dataset.stream = "data_llama_nano";
  return spec;
}

}  // namespace regatta
