#!/usr/bin/env python3
"""Writes distributed_sampler.json: what PyTorch's own DistributedSampler draws. Needs the peers' environment
(scripts/bench --install-peers): .venv-peers/bin/python tests/data/golden/make_sampler_golden.py"""
import json
import pathlib

import torch
from torch.utils.data import DistributedSampler

cases = []
for rows, ranks, seed, epoch in [(12, 2, 42, 0), (12, 2, 42, 1), (12, 3, 7, 2), (40, 4, 0, 0), (1437, 1, 42, 3)]:
    per_rank = []
    for rank in range(ranks):
        sampler = DistributedSampler(range(rows), num_replicas=ranks, rank=rank, shuffle=True, seed=seed)
        sampler.set_epoch(epoch)
        per_rank.append(list(sampler)[:24])
    cases.append({"rows": rows, "ranks": ranks, "seed": seed, "epoch": epoch, "first_rows": per_rank})
out = pathlib.Path(__file__).with_name("distributed_sampler.json")
out.write_text(json.dumps({"torch": torch.__version__, "cases": cases}, indent=1) + "\n")
