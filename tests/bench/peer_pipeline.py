"""The Python peer's pipelines: schedules written by hand over batch_isend_irecv, and torch.distributed.pipelining's own."""
import torch
import torch.distributed as dist

CHUNKS = 4
ROWS = ("naive_pp", "gpipe_pp", "1f1b_pp", "pytorch_gpipe_pp", "pytorch_1f1b_pp")


class Stage(torch.nn.Module):
    """Equally many layers a rank; the first has the embedding, the last the head."""

    def __init__(self, model, rank, ranks):
        super().__init__()
        layers = model.distilbert.transformer.layer
        each, more = divmod(len(layers), ranks)
        begin = rank * each + min(rank, more)
        self.layers = layers[begin:begin + each + (rank < more)]
        self.embeddings = model.distilbert.embeddings if rank == 0 else None
        self.head = None
        if rank == ranks - 1:
            self.head = torch.nn.Sequential(model.pre_classifier, torch.nn.ReLU(), model.dropout, model.classifier)

    def forward(self, x, attention_mask):
        from transformers.modeling_attn_mask_utils import _prepare_4d_attention_mask_for_sdpa
        x = self.embeddings(x) if self.embeddings is not None else x
        mask = _prepare_4d_attention_mask_for_sdpa(attention_mask, x.dtype, tgt_len=x.shape[1])
        for layer in self.layers:
            x = layer(x, mask, None)[-1]
        return x if self.head is None else self.head(x[:, 0])


class ByHand:
    """Waits for every transfer where it stands; a send and a receive that meet go together."""

    def __init__(self, stage, strategy, rank, ranks, width):
        self.stage, self.rank, self.width = stage, rank, width
        self.first, self.last = rank == 0, rank == ranks - 1
        self.warm_up = ranks - rank - 1 if strategy == "1f1b_pp" else CHUNKS
        self.last_first = strategy == "gpipe_pp"

    def exchange(self, sends=None, to=0, receives=None, source=0):
        todo = []
        if sends is not None:
            todo.append(dist.P2POp(dist.isend, sends.detach().contiguous(), to))
        if receives is not None:
            todo.append(dist.P2POp(dist.irecv, receives, source))
        for work in dist.batch_isend_irecv(todo) if todo else ():
            work.wait()
        return receives

    def room(self, chunk):
        return torch.empty(*chunk["mask"].shape, self.width)

    def forward(self, chunk, x):
        x = chunk["ids"] if self.first else x.requires_grad_()
        y = self.stage(x, chunk["mask"])
        if self.last:
            y = torch.nn.functional.cross_entropy(y, chunk["labels"]) / self.count
            self.loss += y.item()
        self.kept.append((chunk, x, y))
        return None if self.last else y

    def backward(self, gradient):
        _, x, y = self.kept.pop(-1 if self.last_first else 0)
        y.backward(gradient)
        return None if self.first else x.grad

    def room_of_gradient(self):
        return None if self.last else self.room(self.kept[-1 if self.last_first else 0][0])

    def step(self, chunks):
        self.kept, self.loss, self.count = [], 0.0, len(chunks)
        back, on = self.rank - 1, self.rank + 1
        todo = list(chunks)
        activation = None if self.first else self.exchange(receives=self.room(todo[0]), source=back)
        done = 0
        for number in range(len(chunks)):
            out = self.forward(todo.pop(0), activation)
            more = None if self.first or not todo else self.room(todo[0])
            if number < min(self.warm_up, len(chunks)):  # nothing to go back for yet
                self.exchange(out, on, more, back)
                activation = more
                continue
            gradient = self.exchange(out, on, self.room_of_gradient(), on)
            activation = self.exchange(self.backward(gradient), back, more, back)
            done += 1
        while done < len(chunks):
            gradient = self.exchange(receives=self.room_of_gradient(), source=on)
            self.exchange(self.backward(gradient), back)
            done += 1
        return self.loss


class Native:
    """ScheduleGPipe or Schedule1F1B."""

    def __init__(self, stage, strategy, rank, ranks, _):
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
        self.first, self.last = rank == 0, rank == ranks - 1
        kind = ScheduleGPipe if "gpipe" in strategy else Schedule1F1B
        self.schedule = kind(PipelineStage(stage, rank, ranks, torch.device("cpu")), n_microbatches=CHUNKS,
                             loss_fn=torch.nn.functional.cross_entropy)

    def step(self, batch):
        losses = []
        self.schedule.step(*([batch["ids"]] if self.first else []), attention_mask=batch["mask"],
                           **({"target": batch["labels"], "losses": losses} if self.last else {}))
        return float(sum(loss.detach() for loss in losses)) / CHUNKS if self.last else 0.0


class Pipeline:
    """One rank's stage, and a step of its schedule over a batch of everybody."""

    def __init__(self, model, strategy, rank, ranks):
        self.stage = Stage(model, rank, ranks)
        self.native = strategy.startswith("pytorch_")
        self.chunks = 1 if strategy == "naive_pp" else CHUNKS
        self.schedule = (Native if self.native else ByHand)(self.stage, strategy, rank, ranks, model.config.dim)

    def step(self, batch):
        if self.native:
            return self.schedule.step(batch)
        parts = {name: tensor.chunk(self.chunks) for name, tensor in batch.items()}
        return self.schedule.step([{name: part[i] for name, part in parts.items()} for i in range(self.chunks)])
