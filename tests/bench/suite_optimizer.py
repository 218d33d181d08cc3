"""One AdamW step over a model's parameters: regatta's fused kernel against what PyTorch takes by itself on a CPU (a loop
over parameters)."""
import statistics

import runner
import sides


def measure(places, blocks):
    rows, raw = [], {}
    for name, shape, folder in sides.wanted_shapes(places):

        def ours():
            return statistics.median(sides.run_ours(places, name, folder, shape["steps"], metric="optimizer_seconds")[0])

        def peer():
            return statistics.median(sides.run_peer_optimizer(places, folder, shape["steps"])[sides.WARMUP:])

        samples = runner.interleave(places, ours, peer, blocks, name)
        ratio, low, high = runner.ratio_interval(samples[1], samples[0])
        rows.append([name, runner.spread([1000 * s for s in samples[0]]), runner.spread([1000 * s for s in samples[1]]),
                     f"{ratio:.2f} ({low:.2f}-{high:.2f})"])
        raw[name] = {"seconds_ours": samples[0], "seconds_peer": samples[1], "ratio": [ratio, low, high]}
    table = runner.markdown(["model", "regatta, ms", "PyTorch's default, ms", "times faster (95 %)"], rows)
    return {"suite": "optimizer", "blocks": blocks, "raw": raw, "table": table}
