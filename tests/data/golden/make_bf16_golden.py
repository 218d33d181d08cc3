#!/usr/bin/env python3
"""Writes bf16.json: losses of the nano DistilBERT under torch.autocast on a CPU, and in fp32 beside them. Needs the
peers' environment (scripts/bench --install-peers): .venv-peers/bin/python tests/data/golden/make_bf16_golden.py"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
from transformers import DistilBertForSequenceClassification

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "bench"))
import shapes


def losses(folder, data, bf16):
    model = DistilBertForSequenceClassification.from_pretrained(folder).eval()  # no dropout
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    seen = []
    for step in range(6):
        rows = slice(step % 4 * 8, step % 4 * 8 + 8)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = model(input_ids=data["ids"][rows], attention_mask=data["mask"][rows]).logits
        loss = torch.nn.functional.cross_entropy(logits.float(), data["labels"][rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(loss.item())
    return seen


torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as place:
    folder = pathlib.Path(place)
    shapes.write_peer_folder("nano", folder)
    rows = {key: torch.from_numpy(value) for key, value in np.load(folder / "rows.npz").items()}
    golden = {"torch": torch.__version__, "losses": losses(folder, rows, True), "losses_fp32": losses(folder, rows, False)}
(HERE / "bf16.json").write_text(json.dumps(golden, indent=1) + "\n")
