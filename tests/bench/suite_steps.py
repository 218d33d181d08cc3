"""Steps per second of one rank on one thread: same model, rows, kernels and optimizer (fused AdamW) on both sides."""
import statistics

import runner
import sides


def measure(places, blocks):
    rows, raw = [], {}
    for name, shape, folder in sides.wanted_shapes(places):
        losses, memory = {}, {"ours": [], "peer": [], "imports": []}

        def ours():
            seconds, losses["ours"], rss = sides.run_ours(places, name, folder, shape["steps"])
            memory["ours"].append(rss)
            return statistics.median(seconds)

        def peer():
            (said,), _, _ = sides.run_peer(places, folder, shape["steps"])
            losses["peer"] = said["losses"]
            memory["peer"].append(said["rss"])
            memory["imports"].append(said["rss_after_imports"])
            return statistics.median(said["step_seconds"][sides.WARMUP:])

        ours()
        peer()
        runner.check_losses(losses["ours"], losses["peer"], name)
        samples = runner.interleave(places, ours, peer, blocks, name)
        ratio, low, high = runner.ratio_interval(samples[1], samples[0])
        mebibytes = {side: statistics.median(values) / 2**20 for side, values in memory.items()}
        rows.append([name, "dispatch" if name == "nano" else "compute",
                     runner.spread([1000 * s for s in samples[0]]), runner.spread([1000 * s for s in samples[1]]),
                     f"{ratio:.2f} ({low:.2f}-{high:.2f})",
                     f"{mebibytes['ours']:.0f}", f"{mebibytes['peer']:.0f}", f"{mebibytes['imports']:.0f}"])
        raw[name] = {"step_seconds_ours": samples[0], "step_seconds_peer": samples[1], "ratio": [ratio, low, high],
                     "memory_mib": mebibytes, "losses": losses}
    table = runner.markdown(["model", "bound by", "regatta, ms a step", "Python, ms a step", "times faster (95 %)",
                             "regatta, peak RSS MiB", "Python, peak RSS MiB", "Python after imports, MiB"], rows)
    return {"suite": "steps", "blocks": blocks, "raw": raw, "table": table}
