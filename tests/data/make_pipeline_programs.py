"""Writes pipeline_programs.txt: what torch.distributed.pipelining's schedules compute on each rank, in order.

ScheduleGPipe and Schedule1F1B are run on a stage that only takes notes: what Schedule1F1B prints of itself
(_get_pipeline_order, 2.11) begins with micro-batch 1 on the last rank, which it does not do."""
import pathlib
from unittest import mock

from torch.distributed.pipelining import schedules


class NotingStage:
    def __init__(self, rank, ranks):
        self.stage_index, self.num_stages, self.notes = rank, ranks, []

    def forward_one_chunk(self, micro_batch, *args, **kwargs):
        self.notes.append(f"{self.stage_index}F{micro_batch}")

    def backward_one_chunk(self, micro_batch, *args, **kwargs):
        self.notes.append(f"{self.stage_index}B{micro_batch}")

    def __getattr__(self, name):
        return lambda *args, **kwargs: []  # transfers, and what is done about losses


def run(kind, ranks, rank, micro_batches):
    schedule = object.__new__(kind)
    schedule._n_microbatches, schedule._num_stages = micro_batches, ranks
    schedule._stage, schedule.scale_grads = NotingStage(rank, ranks), True
    batches = ([()] * micro_batches, [{}] * micro_batches)
    with mock.patch.multiple(kind, _check_inputs=lambda *a, **k: batches, _initialize_stage=mock.DEFAULT,
                             _maybe_compute_loss=mock.DEFAULT, _maybe_get_loss=mock.DEFAULT,
                             _update_losses=mock.DEFAULT), \
            mock.patch.multiple(schedules, _batch_p2p=mock.DEFAULT, _wait_batch_p2p=mock.DEFAULT):
        schedule._step_microbatches()
    return schedule._stage.notes


def planned(kind, ranks, per_rank, rank, micro_batches):
    schedule = object.__new__(kind)
    schedule._n_microbatches, schedule.pp_group_size, schedule.n_local_stages = micro_batches, ranks, per_rank
    schedule.number_of_rounds = max(1, micro_batches // ranks)
    schedule.microbatches_per_round = micro_batches // schedule.number_of_rounds
    return [str(action) for action in schedule._calculate_single_rank_operations(rank) if action is not None]


def programs():
    """name, kind, ranks, stages a rank, micro-batches"""
    rows = [("pytorch_gpipe_pp", schedules.ScheduleGPipe, [1]), ("pytorch_1f1b_pp", schedules.Schedule1F1B, [1]),
            ("interleaved_1f1b_pp", schedules.ScheduleInterleaved1F1B, [2, 3]),
            ("zb1p_pp", schedules.ScheduleInterleavedZeroBubble, [1])]
    for name, kind, chunks in rows:
        for ranks in (2, 3, 4, 8):
            for per_rank in chunks:
                for micro_batches in (1, 2, 4, 6, 8, 12, 16, 32):
                    uneven = micro_batches % max(1, micro_batches // ranks) != 0
                    if (uneven and per_rank > 1) or (per_rank == 3 and micro_batches > 8):
                        continue
                    yield name, kind, ranks, per_rank, micro_batches


def main():
    with open(pathlib.Path(__file__).with_name("pipeline_programs.txt"), "w") as out:
        for name, kind, ranks, per_rank, micro_batches in programs():
            for rank in range(ranks):
                if issubclass(kind, schedules.PipelineScheduleSingle):
                    texts = run(kind, ranks, rank, micro_batches)
                else:
                    texts = [t for t in planned(kind, ranks, per_rank, rank, micro_batches) if "REDUCE" not in t]
                out.write(f"{name} {ranks} {per_rank} {micro_batches} {rank}: {' '.join(texts)}\n")


main()
