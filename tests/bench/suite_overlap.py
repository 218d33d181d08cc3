"""Does launching inside backward pay? Two ranks over a link of 1 Gbit/s each way, the same buckets of 4 MiB, launched when
they are full or after backward. Both sides are regatta; needs rights to make a network namespace."""
import json
import shutil
import statistics
import subprocess

import runner
import sides

# Both directions of two ranks share the loopback interface.
LINK = ["unshare", "-n", "sh", "-c", "ip link set lo up && tc qdisc add dev lo root tbf rate 2gbit burst 256kb latency 100ms "
        '&& exec "$@"', "link"]
MODELS = {
    "DistilBERT, 14 M": {"name": "distilbert", "dim": 384, "n_heads": 12, "n_layers": 6, "hidden_dim": 1536,
                         "vocab_size": 8192, "max_position_embeddings": 128, "num_labels": 5},
    "Llama, 16 M": {"name": "llama", "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8,
                    "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 8192, "max_position_embeddings": 128,
                    "num_labels": 5, "pad_token_id": 2},
}
STEPS = 8


def run(places, model, length, launch, losses):
    state = places.work / "overlap"
    file = places.work / "overlap.yaml"
    file.write_text(json.dumps({"name": "overlap", "run": {
        "strategy": {"name": "data_parallel", "bucket_mib": 4, "launch": launch, "wait": "at_finish"}, "ranks": 2,
        "model": model, "batch_size": 32, "steps": STEPS, "threads_per_rank": 1,
        "dataset": {"name": "synthetic", "rows": 512, "max_length": length, "eval_rows": "none"}}}))
    subprocess.run([*LINK, places.binaries / "regatta", "run", file, "--state", state], check=True,
                   env=sides.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with sides.database(state) as connection:
        (seconds,) = connection.execute("select step_seconds_median from results").fetchone()
        (exposed,) = connection.execute("select avg(value) from steps where name = 'exposed_communication_seconds' "
                                        "and step >= ?", (sides.WARMUP,)).fetchone()
        losses[launch] = sides.losses_of(connection, 1)
    shutil.rmtree(state)
    return {"step": seconds, "exposed": exposed}


def measure(places, blocks):
    rows, raw = [], {}
    for name, model in MODELS.items():
        for length in (32, 64):
            losses = {}
            what = f"{name}, rows of {length} tokens"
            if not places.wants(what):
                continue
            inside, after = runner.interleave(places, lambda: run(places, model, length, "gradients_ready", losses),
                                              lambda: run(places, model, length, "after_backward", losses), blocks, what)
            runner.check_losses(losses["gradients_ready"], losses["after_backward"], what)
            ratio, low, high = runner.ratio_interval([s["step"] for s in after], [s["step"] for s in inside])
            rows.append([what, runner.spread([s["step"] for s in inside]), runner.spread([s["step"] for s in after]),
                         f"{ratio:.2f} ({low:.2f}-{high:.2f})", f"{statistics.median(s['exposed'] for s in inside):.2f}",
                         f"{statistics.median(s['exposed'] for s in after):.2f}"])
            raw[what] = {"inside": inside, "after": after, "ratio": [ratio, low, high]}
    table = runner.markdown(["model", "launched inside backward, s a step", "after it", "times faster (95 %)",
                             "of which exposed, s", "exposed after it, s"], rows)
    return {"suite": "overlap", "blocks": blocks, "raw": raw, "table": table}
