"""The two synthetic models of the bench, for both sides (recipe: tests/data/README.md)."""
import json
import pathlib

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
BATCH = 8
SHAPES = {
    "nano": {"dim": 64, "n_heads": 4, "n_layers": 4, "hidden_dim": 256, "vocab_size": 512,
             "max_position_embeddings": 64, "rows": 32, "length": 32, "steps": 60},
    "mini": {"dim": 384, "n_heads": 12, "n_layers": 6, "hidden_dim": 1536, "vocab_size": 8192,
             "max_position_embeddings": 128, "rows": 512, "length": 64, "steps": 14},
}
_MODEL_KEYS = ("dim", "n_heads", "n_layers", "hidden_dim", "vocab_size", "max_position_embeddings")


def experiment(name, strategy, ranks, steps, model_folder):
    """YAML for regatta; both sides load the model from the same folder."""
    shape = SHAPES[name]
    run = {"strategy": strategy, "ranks": ranks, "model": str(model_folder), "batch_size": BATCH, "steps": steps,
           "dataset": {"name": "synthetic", "rows": shape["rows"], "max_length": shape["length"],
                       "eval_rows": "none", "stream": f"data_bert_{name}"},
           "padding": {"fixed": shape["length"]}, "sampler": "sequential", "threads_per_rank": 1,
           "optimizer": {"name": "adamw", "learning_rate": 5e-5, "implementation": "fused"}}
    if strategy.endswith("_pp"):
        run["micro_batches"] = 1 if strategy == "naive_pp" else 4
    return json.dumps({"name": f"bench-{name}-{strategy}", "run": run})  # JSON is YAML


def write_peer_folder(name, folder):
    """A Hugging Face folder and rows.npz with the same numbers; needs the peers' numpy and safetensors."""
    import numpy as np
    from safetensors.numpy import save_file

    def stream(text, count):
        start = 0xCBF29CE484222325
        for byte in text.encode():
            start = ((start ^ byte) * 0x100000001B3) & MASK
        with np.errstate(over="ignore"):
            x = np.uint64(start) + np.arange(count, dtype=np.uint64) * np.uint64(GOLDEN) + np.uint64(GOLDEN)
            x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return x ^ (x >> np.uint64(31))

    def tensor(text, shape, amplitude, offset=0.0):
        integers = (stream(text, int(np.prod(shape))) >> np.uint64(40)).astype(np.int64) - (1 << 23)
        values = integers.astype(np.float32) * np.float32(2.0**-23) * np.float32(amplitude)
        return (values + np.float32(offset) if offset else values).reshape(shape)

    shape = SHAPES[name]
    dim, hidden = shape["dim"], shape["hidden_dim"]
    tensors = {}

    def linear(text, out, into):
        tensors[f"{text}.weight"] = tensor(f"{text}.weight", (out, into), np.float32(np.sqrt(1 / into)))
        tensors[f"{text}.bias"] = tensor(f"{text}.bias", (out,), 0.05)

    def norm(text):
        tensors[f"{text}.weight"] = tensor(f"{text}.weight", (dim,), 0.1, 1.0)
        tensors[f"{text}.bias"] = tensor(f"{text}.bias", (dim,), 0.1)

    for table, size in (("word", shape["vocab_size"]), ("position", shape["max_position_embeddings"])):
        text = f"distilbert.embeddings.{table}_embeddings.weight"
        tensors[text] = tensor(text, (size, dim), 0.05)
    norm("distilbert.embeddings.LayerNorm")
    for layer in range(shape["n_layers"]):
        prefix = f"distilbert.transformer.layer.{layer}."
        for part in ("q_lin", "k_lin", "v_lin", "out_lin"):
            linear(f"{prefix}attention.{part}", dim, dim)
        norm(prefix + "sa_layer_norm")
        linear(prefix + "ffn.lin1", hidden, dim)
        linear(prefix + "ffn.lin2", dim, hidden)
        norm(prefix + "output_layer_norm")
    linear("pre_classifier", dim, dim)
    linear("classifier", 5, dim)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["DistilBertForSequenceClassification"], "model_type": "distilbert", "activation": "gelu",
        "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "qa_dropout": 0.0, "pad_token_id": 0,
        "sinusoidal_pos_embds": False, "num_labels": 5, "torch_dtype": "float32",
        **{key: shape[key] for key in _MODEL_KEYS}}))

    rows, length = shape["rows"], shape["length"]
    row_numbers = stream(f"data_bert_{name}/train.rows", 2 * rows)
    token_numbers = stream(f"data_bert_{name}/train.tokens", rows * length).reshape(rows, length)
    labels = (row_numbers[:rows] % np.uint64(5)).astype(np.int64)
    lengths = length // 4 + (row_numbers[rows:] % np.uint64(length - length // 4 + 1)).astype(np.int64)
    words = 16 + ((token_numbers >> np.uint64(8)) % np.uint64(shape["vocab_size"] - 16)).astype(np.int64)
    ids = np.where(token_numbers % np.uint64(5) == 0, 4 + labels[:, None], words)
    ids[:, 0] = 1
    mask = (np.arange(length)[None, :] < lengths[:, None]).astype(np.int64)
    np.savez(folder / "rows.npz", ids=np.where(mask == 1, ids, 0), mask=mask, labels=labels)
