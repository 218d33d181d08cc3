#!/usr/bin/env python3
"""Writes original.json: what the study's way of training makes of the nano DistilBERT (compat: original), with stock
PyTorch and transformers in one process. Needs the peers' environment (scripts/bench --install-peers):
.venv-peers/bin/python tests/data/golden/make_original_golden.py"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
from torch.utils.data import BatchSampler, DistributedSampler
from transformers import DistilBertForSequenceClassification

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "bench"))
import shapes

LEARNING_RATE = 0.05


def load(folder, rows):
    shapes.SHAPES["nano"]["rows"] = rows  # lengths and labels depend on how many there are
    shapes.write_peer_folder("nano", folder)
    data = {key: torch.from_numpy(value) for key, value in np.load(folder / "rows.npz").items()}
    return DistilBertForSequenceClassification.from_pretrained(folder).eval(), data


def batches_of(rows, ranks, rank, batch, epoch, drop_last=False):
    """As DataLoader(sampler=DistributedSampler(shuffle=True)) has them: padded by wrapping, seed 0."""
    sampler = DistributedSampler(range(rows), num_replicas=ranks, rank=rank, shuffle=True)
    sampler.set_epoch(epoch)
    return list(BatchSampler(sampler, batch, drop_last))


def mean_loss(model, data, rows, padded=None):
    length = padded or int(data["mask"][rows].sum(1).max())
    logits = model(input_ids=data["ids"][rows, :length], attention_mask=data["mask"][rows, :length]).logits
    return torch.nn.functional.cross_entropy(logits, data["labels"][rows])


def describe(model, steps):
    return {"steps": steps,
            "tensors": {name: {"abs_sum": tensor.double().abs().sum().item(), "sum": tensor.double().sum().item(),
                               "first": tensor.flatten()[:4].tolist()}
                        for name, tensor in model.named_parameters()}}


def data_parallel(folder, rows, ranks, batch, accumulation, epochs):
    """Each rank's mean over its own rows, scaled by 1/k; a step every k batches, and one at an epoch's end with what
    is left; then the mean over ranks. Gradients of ranks add up in one process."""
    model, data = load(folder, rows)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    steps = 0
    for epoch in range(epochs):
        of_ranks = [batches_of(rows, ranks, rank, batch // ranks, epoch) for rank in range(ranks)]
        count = len(of_ranks[0])
        for number in range(count):
            for rank in range(ranks):
                (mean_loss(model, data, of_ranks[rank][number]) / accumulation / ranks).backward()
            if (number + 1) % accumulation == 0 or number + 1 == count:
                optimizer.step()
                optimizer.zero_grad()
                steps += 1
    return describe(model, steps)


def pipeline(folder, rows, batch, chunks, epochs, by_hand):
    """Each chunk's mean, scaled by 1/M. By hand: Tensor.chunk, padded to 32, an incomplete batch dropped; else as
    torch.distributed.pipelining: tensor_split, padded to the batch's longest."""
    model, data = load(folder, rows)
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE)
    steps = 0
    for epoch in range(epochs):
        for of_batch in batches_of(rows, 1, 0, batch, epoch, drop_last=by_hand):
            whole = torch.tensor(of_batch)
            longest = int(data["mask"][whole].sum(1).max())
            for part in whole.chunk(chunks) if by_hand else whole.tensor_split(chunks):
                (mean_loss(model, data, part, 32 if by_hand else longest) / chunks).backward()
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
    return describe(model, steps)


torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as place:
    here = pathlib.Path(place)
    goldens = {
        "uneven": data_parallel(here, rows=21, ranks=2, batch=8, accumulation=1, epochs=2),
        "uneven_on_3": data_parallel(here, rows=20, ranks=3, batch=6, accumulation=1, epochs=2),
        "flush_alone": data_parallel(here, rows=21, ranks=2, batch=8, accumulation=4, epochs=4),
        "flush_after_step": data_parallel(here, rows=21, ranks=2, batch=8, accumulation=2, epochs=3),
        "chunks_by_hand": pipeline(here, rows=25, batch=10, chunks=4, epochs=3, by_hand=True),
        "chunks_of_pytorch": pipeline(here, rows=25, batch=10, chunks=4, epochs=2, by_hand=False)}
(HERE / "original.json").write_text(json.dumps({"torch": torch.__version__, "learning_rate": LEARNING_RATE, **goldens},
                                               indent=1) + "\n")
