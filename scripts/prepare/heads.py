"""The classification head that a model gets which has none: labels, weights, and what config.json says of them."""
import hashlib
import json

import numpy as np

LABELS = ["1 star", "2 stars", "3 stars", "4 stars", "5 stars"]
SEED = 42


def weight(name, shape):
    """N(0, 0.02), one stream a tensor name, stored so that every program starts equal."""
    stream = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")
    return np.random.default_rng([SEED, stream]).normal(0.0, 0.02, shape).astype(np.float32)


def label_keys():
    return {"problem_type": "single_label_classification",
            "id2label": {str(i): label for i, label in enumerate(LABELS)},
            "label2id": {label: i for i, label in enumerate(LABELS)}}


def tensors(model_type, dim):
    """The tensors of a new head, as transformers names them."""
    if model_type == "llama":
        return {"score.weight": weight("score.weight", (len(LABELS), dim))}
    return {"pre_classifier.weight": weight("pre_classifier.weight", (dim, dim)),
            "pre_classifier.bias": np.zeros(dim, np.float32),
            "classifier.weight": weight("classifier.weight", (len(LABELS), dim)),
            "classifier.bias": np.zeros(len(LABELS), np.float32)}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
