"""The Python peer: stock PyTorch and transformers doing what a regatta rank does. Runs under torchrun or alone.

  python peer.py --write-material NAME FOLDER
  [torchrun ...] python peer.py FOLDER OUT STEPS     one JSON a rank: OUT/rank_R.json
"""
import time

BEGIN = time.time()

import json
import os
import pathlib
import resource
import sys

import numpy as np
import torch
import torch.distributed as dist
from transformers import DistilBertForSequenceClassification

IMPORTED = time.time()
BATCH = 8


def rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def train(folder, out, steps):
    after_imports = rss_bytes()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(1)
    if ranks > 1:
        dist.init_process_group("gloo")
    grouped = time.time()
    model = DistilBertForSequenceClassification.from_pretrained(folder)
    model.train()
    rows = {key: torch.from_numpy(value) for key, value in np.load(pathlib.Path(folder) / "rows.npz").items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, fused=True)
    loaded = time.time()
    losses, seconds = [], []
    first_step = None
    for step in range(steps):
        start = time.perf_counter()
        batch = step % (len(rows["labels"]) // BATCH)
        mine = slice(batch * BATCH + rank, (batch + 1) * BATCH, ranks)
        loss = model(input_ids=rows["ids"][mine], attention_mask=rows["mask"][mine], labels=rows["labels"][mine]).loss
        loss.backward()
        if ranks > 1:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= ranks
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        first_step = first_step or time.time()
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    (pathlib.Path(out) / f"rank_{rank}.json").write_text(json.dumps({
        "losses": losses, "step_seconds": seconds, "rss_after_imports": after_imports, "rss": rss_bytes(),
        "times": {"begin": BEGIN, "imported": IMPORTED, "grouped": grouped, "loaded": loaded,
                  "first_step": first_step, "done": time.time()}}))


if __name__ == "__main__":
    if sys.argv[1] == "--write-material":
        import shapes
        shapes.write_peer_folder(sys.argv[2], sys.argv[3])
    else:
        train(sys.argv[1], sys.argv[2], int(sys.argv[3]))
