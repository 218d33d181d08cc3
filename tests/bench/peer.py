"""The Python peer: stock PyTorch and transformers doing what a regatta rank does. Runs under torchrun or alone.

  python peer.py --write-material NAME FOLDER
  python peer.py --default-optimizer FOLDER STEPS               seconds of each step, as JSON
  [torchrun ...] python peer.py FOLDER OUT STEPS [STRATEGY]     one JSON a rank: OUT/rank_R.json
"""
import time

BEGIN = time.time()

import json
import os
import pathlib
import resource
import sys

import numpy as np
import peer_pipeline
import torch
import torch.distributed as dist
from transformers import DistilBertForSequenceClassification

IMPORTED = time.time()
BATCH = 8


def rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class AfterBackward:
    """simple_ddp, simple_ddp_ga: one all-reduce after the other, once backward is done."""

    def __init__(self, parameters, ranks):
        self.parameters, self.ranks = parameters, ranks
        self.sync = True  # false in batches before a step's last one

    def updated(self):
        """What this rank's optimizer has."""
        return self.parameters

    def before_forward(self):
        pass

    def after_step(self):
        pass

    def reduce(self, tensor):
        dist.all_reduce(tensor)
        tensor /= self.ranks

    def finish(self):
        for parameter in self.parameters:
            self.reduce(parameter.grad)


class InHook(AfterBackward):
    """simple_ddp_hook: inside backward, each waited for."""

    def __init__(self, parameters, ranks):
        super().__init__(parameters, ranks)
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self.ready)

    def ready(self, parameter):
        if self.sync:
            self.reduce(parameter.grad)

    def finish(self):
        pass


class Beside(InHook):
    """simple_ddp_async: launched inside backward, waited for after it."""

    def __init__(self, parameters, ranks):
        super().__init__(parameters, ranks)
        self.started = []

    def ready(self, parameter):
        if self.sync:
            self.started.append((dist.all_reduce(parameter.grad, async_op=True), parameter))

    def finish(self):
        for work, parameter in self.started:
            work.wait()
            parameter.grad /= self.ranks
        self.started.clear()


class Buckets(InHook):
    """bucket_ddp_async: flat buckets of 25 MiB in reverse order, launched when full."""

    def __init__(self, parameters, ranks):
        super().__init__(parameters, ranks)
        self.buckets, size = [[]], 0
        for parameter in reversed(parameters):
            if size >= 25 << 20:
                self.buckets.append([])
                size = 0
            self.buckets[-1].append(parameter)
            size += parameter.numel() * 4
        self.bucket_of = {parameter: number for number, bucket in enumerate(self.buckets) for parameter in bucket}
        self.begin()

    def begin(self):
        self.missing = [len(bucket) for bucket in self.buckets]
        self.started, self.next = [], 0

    def ready(self, parameter):
        if not self.sync:
            return
        self.missing[self.bucket_of[parameter]] -= 1
        while self.next < len(self.buckets) and self.missing[self.next] == 0:
            flat = torch.cat([p.grad.flatten() for p in self.buckets[self.next]])
            self.started.append((dist.all_reduce(flat, async_op=True), flat, self.buckets[self.next]))
            self.next += 1

    def finish(self):
        for work, flat, bucket in self.started:
            work.wait()
            flat /= self.ranks
            for parameter, part in zip(bucket, flat.split([p.numel() for p in bucket])):
                parameter.grad.copy_(part.view_as(parameter))
        self.begin()


class Zero1(AfterBackward):
    """zero1 as the study wrote it: parameters by index to ranks, gradients all-reduced, owners broadcast."""

    def __init__(self, parameters, ranks):
        super().__init__(parameters, ranks)
        each, more = divmod(len(parameters), ranks)
        owners = [rank for rank in range(ranks) for _ in range(each + (rank < more))]
        self.owner = dict(zip(parameters, owners, strict=True))
        self.rank = dist.get_rank()

    def updated(self):
        return [parameter for parameter in self.parameters if self.owner[parameter] == self.rank]

    def after_step(self):
        for parameter in self.parameters:
            dist.broadcast(parameter.data, self.owner[parameter])


class Zero2(Zero1):
    """zero2 of the study: a list reduce-scatter of each gradient, zeros for everybody but its owner."""

    def finish(self):
        for parameter in self.parameters:
            owner = self.owner[parameter]
            parts = [parameter.grad if rank == owner else torch.zeros_like(parameter.grad) for rank in range(self.ranks)]
            mine = torch.empty_like(parameter.grad)
            dist.reduce_scatter(mine, parts)
            parameter.grad = mine.div_(self.ranks) if owner == self.rank else None


class Zero3(Zero2):
    """zero3 of the study: owners broadcast the whole model before each forward; afterwards the rest is emptied."""

    def __init__(self, parameters, ranks):
        super().__init__(parameters, ranks)
        self.shapes = {parameter: parameter.shape for parameter in parameters}
        self.empty()

    def empty(self):
        for parameter in self.parameters:
            if self.owner[parameter] != self.rank:
                parameter.data = torch.empty(0)

    def before_forward(self):
        for parameter in self.parameters:
            if self.owner[parameter] != self.rank:
                parameter.data = torch.empty(self.shapes[parameter])
            dist.broadcast(parameter.data, self.owner[parameter])

    def finish(self):
        super().finish()
        self.empty()

    def after_step(self):
        pass


class Native(AfterBackward):
    """DistributedDataParallel or fully_shard does it all."""

    def finish(self):
        pass


REDUCERS = {"simple_ddp": AfterBackward, "simple_ddp_ga": AfterBackward, "simple_ddp_hook": InHook,
            "simple_ddp_async": Beside, "bucket_ddp_async": Buckets, "baseline": AfterBackward, "zero1": Zero1,
            "zero2": Zero2, "zero3": Zero3}


def fully_sharded(model, strategy):
    from torch.distributed.fsdp import fully_shard
    for layer in model.distilbert.transformer.layer:
        fully_shard(layer, reshard_after_forward=strategy == "pytorch_zero3")
    return fully_shard(model, reshard_after_forward=strategy == "pytorch_zero3")


def make_optimizer(parameters, strategy):
    if strategy == "pytorch_zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=5e-5, fused=True)
    return torch.optim.AdamW(parameters, lr=5e-5, fused=True)


def train(folder, out, steps, strategy="simple_ddp"):
    after_imports = rss_bytes()
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(1)
    if ranks > 1:
        dist.init_process_group("gloo")
    grouped = time.time()
    model = DistilBertForSequenceClassification.from_pretrained(folder)
    model.train()
    accumulation = 4 if strategy == "simple_ddp_ga" else 1
    module, kind, pipeline = model, Native, None
    if strategy in peer_pipeline.ROWS:
        pipeline = peer_pipeline.Pipeline(model, strategy, rank, ranks)
        module = model = pipeline.stage
    elif ranks > 1 and strategy in ("pytorch_ddp", "pytorch_zero1"):
        module = torch.nn.parallel.DistributedDataParallel(model)
    elif ranks > 1 and strategy in ("pytorch_zero2", "pytorch_zero3"):
        module = fully_sharded(model, strategy)
    elif ranks > 1:
        kind = REDUCERS[strategy]
    reducer = kind(list(model.parameters()), ranks)
    rows = {key: torch.from_numpy(value) for key, value in np.load(pathlib.Path(folder) / "rows.npz").items()}
    optimizer = make_optimizer(reducer.updated(), strategy if ranks > 1 else "")
    loaded = time.time()
    losses, seconds = [], []
    first_step = None
    for step in range(steps):
        start = time.perf_counter()
        total = 0.0
        for part in range(accumulation):
            batch = (step * accumulation + part) % (len(rows["labels"]) // BATCH)
            if pipeline is not None:
                total += pipeline.step({key: tensor[batch * BATCH:(batch + 1) * BATCH] for key, tensor in rows.items()})
                continue
            mine = slice(batch * BATCH + rank, (batch + 1) * BATCH, ranks)
            reducer.sync = part == accumulation - 1
            reducer.before_forward()
            loss = module(input_ids=rows["ids"][mine], attention_mask=rows["mask"][mine],
                          labels=rows["labels"][mine]).loss / accumulation
            loss.backward()
            total += loss.item()
        reducer.finish()
        optimizer.step()
        model.zero_grad(set_to_none=True)  # of all parameters, whoever updates them
        reducer.after_step()
        losses.append(total)
        seconds.append(time.perf_counter() - start)
        first_step = first_step or time.time()
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    (pathlib.Path(out) / f"rank_{rank}.json").write_text(json.dumps({
        "losses": losses, "step_seconds": seconds, "rss_after_imports": after_imports, "rss": rss_bytes(),
        "times": {"begin": BEGIN, "imported": IMPORTED, "grouped": grouped, "loaded": loaded,
                  "first_step": first_step, "done": time.time()}}))


def time_default_optimizer(folder, steps):
    torch.set_num_threads(1)
    model = DistilBertForSequenceClassification.from_pretrained(folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    seconds = []
    for _ in range(steps):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter) * 1e-3
        start = time.perf_counter()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    print(json.dumps(seconds))


if __name__ == "__main__":
    if sys.argv[1] == "--write-material":
        import shapes
        shapes.write_peer_folder(sys.argv[2], sys.argv[3])
    elif sys.argv[1] == "--default-optimizer":
        time_default_optimizer(sys.argv[2], int(sys.argv[3]))
    else:
        train(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
