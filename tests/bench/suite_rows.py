"""Steps of two ranks on one thread each under every row of a family: same model, rows and optimizer (fused AdamW), Gloo,
and the same method in Python."""
import statistics

import runner
import shapes
import sides

ROWS = {"ddp": ["simple_ddp", "simple_ddp_ga", "simple_ddp_hook", "simple_ddp_async", "bucket_ddp_async", "pytorch_ddp"],
        "sharded": ["baseline", "zero1", "zero2", "zero3", "pytorch_zero1", "pytorch_zero2", "pytorch_zero3"],
        "pipeline": ["naive_pp", "gpipe_pp", "1f1b_pp", "pytorch_gpipe_pp", "pytorch_1f1b_pp"]}
RANKS = 2
STEPS = {"nano": 30, "mini": 8}


def measure(places, blocks, family):
    rows, raw = [], {}
    for name in shapes.SHAPES:
        folder = sides.make_peer_material(places, name)
        for strategy in ROWS[family]:
            steps = STEPS[name] // 4 if strategy == "simple_ddp_ga" and name == "nano" else STEPS[name]
            what = f"{name}, {strategy}"
            if not places.wants(what):
                continue
            losses = {}

            def ours():
                seconds, losses["ours"], _ = sides.run_ours(places, name, folder, steps, RANKS, strategy)
                return statistics.median(seconds)

            def peer():
                said, _, _ = sides.run_peer(places, folder, steps, RANKS, strategy)
                told = said[-1:] if family == "pipeline" else said  # the last stage has the loss
                losses["peer"] = [sum(step) / len(told) for step in zip(*(rank["losses"] for rank in told), strict=True)]
                return statistics.median(said[0]["step_seconds"][sides.WARMUP:])

            samples = runner.interleave(places, ours, peer, blocks, what)
            runner.check_losses(losses["ours"], losses["peer"], what)
            ratio, low, high = runner.ratio_interval(samples[1], samples[0])
            rows.append([name, strategy, runner.spread([1000 * s for s in samples[0]]),
                         runner.spread([1000 * s for s in samples[1]]), f"{ratio:.2f} ({low:.2f}-{high:.2f})"])
            raw[what] = {"step_seconds_ours": samples[0], "step_seconds_peer": samples[1], "ratio": [ratio, low, high]}
    table = runner.markdown(["model", "row", "regatta, ms a step", "Python, ms a step", "times faster (95 %)"], rows)
    return {"suite": family, "blocks": blocks, "raw": raw, "table": table}
