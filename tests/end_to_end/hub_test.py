"""Models and data of a hub, of folders and of one's own files, against a server that stands in for the hub."""
import json
import math
import random
import signal
import struct
import subprocess
import sys
import unittest

import harness
from hub_server import COMMIT, Hub

PYTHON = harness.SOURCE / ".venv/bin/python"
PREPARE = harness.SOURCE / "scripts/prepare"
DIM, LAYERS, WORDS = 16, 1, 64
CONFIG = {"model_type": "distilbert", "dim": DIM, "n_heads": 2, "n_layers": LAYERS, "hidden_dim": 16, "vocab_size": WORDS,
          "max_position_embeddings": 32, "pad_token_id": 0, "architectures": ["DistilBertForMaskedLM"]}
TOKENIZER = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
             "model": {"type": "WordLevel", "unk_token": "w1", "vocab": {f"w{i}": i for i in range(WORDS)}}}


def safetensors(tensors):
    """Bytes of a file of float32 tensors: {name: (shape, values)}."""
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        part = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def read_safetensors(path):
    """{name: (dtype, tuple of numbers)}."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + length])
    kinds = {"F32": ("f", 4), "I64": ("q", 8), "I32": ("i", 4)}
    return {name: (entry["dtype"], struct.unpack_from(
                f"<{math.prod(entry['shape'])}{kinds[entry['dtype']][0]}", content, 8 + length + entry["data_offsets"][0]))
            for name, entry in header.items() if name != "__metadata__"}


def base_model(extra=None):
    """A DistilBERT without a classification head, with one of another task."""
    draw = random.Random(1)
    def tensor(*shape):
        return list(shape), [draw.uniform(-0.1, 0.1) for _ in range(math.prod(shape))]
    tensors = {"distilbert.embeddings.word_embeddings.weight": tensor(WORDS, DIM),
               "distilbert.embeddings.position_embeddings.weight": tensor(32, DIM),
               "vocab_transform.weight": tensor(DIM, DIM)}
    for norm in ("embeddings.LayerNorm", "transformer.layer.0.sa_layer_norm", "transformer.layer.0.output_layer_norm"):
        for part in ("weight", "bias"):
            tensors[f"distilbert.{norm}.{part}"] = tensor(DIM)
    for linear in ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "ffn.lin1", "ffn.lin2"):
        tensors[f"distilbert.transformer.layer.0.{linear}.weight"] = tensor(16, 16)
        tensors[f"distilbert.transformer.layer.0.{linear}.bias"] = tensor(16)
    return {"config.json": json.dumps(CONFIG).encode(), "tokenizer.json": json.dumps(TOKENIZER).encode(),
            "model.safetensors": safetensors(tensors | (extra or {})), "README.md": b"# tiny"}


def rows(count, seed):
    draw = random.Random(seed)
    return [{"text": " ".join(f"w{draw.randrange(2, WORDS)}" for _ in range(draw.randrange(3, 9))), "label": i % 5}
            for i in range(count)]


def json_lines(values):
    return "".join(json.dumps(row) + "\n" for row in values).encode()


@unittest.skipUnless(PYTHON.exists(), "scripts/setup.sh has not made .venv")
class HubTest(harness.Case):
    def setUp(self):
        super().setUp()
        self.material = self.folder / "material"
        self.hub = Hub({"org/tiny": base_model(),
                        "org/data": {"train.jsonl": json_lines(rows(40, 1)), "test.jsonl": json_lines(rows(20, 2))}})
        self.addCleanup(self.hub.close)
        self.environment.update(HF_ENDPOINT=self.hub.url, HF_HOME=str(self.folder / "hf"), PIP_NO_INDEX="1",
                                HF_HUB_DISABLE_TELEMETRY="1")

    def words(self, *arguments):
        return [PYTHON, "-B", PREPARE, "--to", self.material, *arguments]

    def prepare(self, *arguments, expect=0):
        done = subprocess.run(self.words(*arguments), capture_output=True, text=True, check=False, env=self.environment,
                              timeout=120)
        self.assertEqual(done.returncode, expect, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(list(self.material.rglob("*.part")), [])
        return done.stderr

    def manifest(self, folder):
        return json.loads((self.material / folder / "manifest.json").read_text())

    def test_a_model_gets_a_head_and_keeps_its_weights(self):
        self.prepare("org/tiny")
        folder = self.material / "models/org--tiny"
        ours = read_safetensors(folder / "model.safetensors")
        (self.folder / "theirs").write_bytes(self.hub.files["org/tiny"]["model.safetensors"])
        for name, values in read_safetensors(self.folder / "theirs").items():
            if name == "vocab_transform.weight":
                self.assertNotIn(name, ours)
            else:
                self.assertEqual(ours[name], values, name)
        self.assertEqual(len(ours["classifier.weight"][1]), 5 * DIM)
        self.assertEqual(self.manifest("models/org--tiny")["facts"]["source"],
                         {"repository": "org/tiny", "kind": "model", "revision": COMMIT, "licence": "apache-2.0"})
        self.assertIn("yes", self.client("models", "check", folder, state=False).stdout)
        before = len(self.hub.requests)
        self.assertIn("ready", self.prepare("org/tiny"))
        self.assertEqual(len(self.hub.requests), before, "a second run asks nobody")

    def test_a_run_prepares_what_it_needs(self):
        path = self.write("hub.yaml", "name: hub\nrun:\n  model: org/tiny\n  dataset: {name: org/data, max_length: 16}\n"
                          "  strategy: simple_ddp\n  ranks: 2\n  steps: 3\n")
        plan = json.loads(self.client("plan", path, "--material", self.material, "--json", state=False).stdout)
        self.assertEqual(plan["runs"][0]["note"], "first: regatta prepare org/tiny org/data:org/tiny")
        done = self.client("run", path, "--material", self.material, "--json")
        self.assertIn("PENDING: waits for: regatta prepare org/tiny org/data:org/tiny", done.stderr)
        row = json.loads(done.stdout)[0]
        self.assertEqual((row["state"], row["steps"]), ("SUCCEEDED", 3))
        self.assertEqual(self.rows("select eval_rows from results"), [{"eval_rows": 20.0}])
        plan = json.loads(self.client("plan", path, "--material", self.material, "--json", state=False).stdout)
        self.assertEqual(plan["runs"][0]["note"], "")
        self.assertGreater(plan["runs"][0]["state_bytes_per_rank"], 0)

    def test_a_failed_preparation_is_the_runs_sentence(self):
        path = self.write("hub.yaml", "name: hub\nrun:\n  model: org/nothing\n  dataset: org/data\n")
        self.client("run", path, "--material", self.material, expect=10)
        self.assertEqual(self.rows("select state, reason, sentence from results"),
                         [{"state": "FAILED", "reason": "preparation",
                           "sentence": f"regatta prepare: model 'org/nothing' is not at {self.hub.url}, or needs HF_TOKEN"}])

    def test_shuffled_as_the_study_does_it(self):
        self.prepare("org/data:org/tiny")
        script = "import numpy; print(*numpy.random.default_rng(42).permutation(40))"
        order = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True).stdout.split()
        shard = read_safetensors(self.material / "data/org--data/org--tiny/train.safetensors")
        self.assertEqual([str(row) for row in shard["source_row"][1]], order)
        self.assertEqual(shard["labels"][1], tuple(int(row) % 5 for row in order))
        first = rows(40, 1)[int(order[0])]["text"].split()
        self.assertEqual(shard["input_ids"][1][:len(first)], tuple(int(word[1:]) for word in first))

    def test_yelp_from_parquet_and_its_subset(self):
        script = ("import json, sys, pyarrow, pyarrow.parquet as p\n"
                  "rows = [json.loads(line) for line in sys.stdin]\n"
                  "p.write_table(pyarrow.table({k: [r[k] for r in rows] for k in ('label', 'text')}), sys.argv[1])\n")
        files = {}
        for split, count in (("train", 60), ("test", 30)):
            path = self.folder / f"{split}.parquet"
            subprocess.run([PYTHON, "-c", script, path], input=json_lines(rows(count, 3)), check=True)
            files[f"yelp_review_full/{split}-00000-of-00001.parquet"] = path.read_bytes()
        self.hub.files["Yelp/yelp_review_full"] = files
        self.prepare("yelp:org/tiny", "yelp-subset:org/tiny")
        whole = read_safetensors(self.material / "data/yelp/org--tiny/train.safetensors")["source_row"][1]
        subset = read_safetensors(self.material / "data/yelp-subset/org--tiny/train.safetensors")["source_row"][1]
        self.assertEqual((len(whole), len(subset)), (60, 32))
        script = ("import numpy; g = lambda n: numpy.random.default_rng(42).permutation(n); print(*g(60)[:32][g(32)])")
        study = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual([str(row) for row in subset], study)
        self.assertEqual(sorted(subset), sorted(whole[:32]))
        evaluation = read_safetensors(self.material / "data/yelp-subset/org--tiny/eval.safetensors")["source_row"][1]
        self.assertEqual(len(evaluation), 16)

    def test_a_download_that_ends_early_goes_on_where_it_was(self):
        # The library writes 10 MiB at a time. This tensor is of another task's head, and left out.
        self.hub.files["org/tiny"] = base_model(extra={"vocab_projector.weight": ([5 << 20], [0.0] * (5 << 20))})
        self.hub.cut_once.add("model.safetensors")
        self.prepare("org/tiny")
        gets = [request for request in self.hub.requests if request.startswith("GET /cdn/")]
        self.assertEqual(len(gets), 2)
        self.assertRegex(gets[1], r"bytes=[1-9]\d+-")

    def test_a_download_that_always_ends_early(self):
        self.hub.cut_always.add("model.safetensors")
        self.assertIn("model 'org/tiny': model.safetensors was cut off on its way 5 times; prepare again to go on from there",
                      self.prepare("org/tiny", expect=1))
        self.assertFalse((self.material / "models/org--tiny").exists())
        self.hub.cut_always.clear()
        self.prepare("org/tiny")

    def test_bytes_that_are_not_those_announced(self):
        self.hub.altered.add("model.safetensors")
        self.assertRegex(self.prepare("org/tiny", expect=1),
                         "model 'org/tiny': model.safetensors came with sha256 [0-9a-f]{64}; the hub says [0-9a-f]{64}: it was "
                         "removed, prepare again")
        self.hub.altered.clear()
        self.prepare("org/tiny")

    def test_what_the_hub_lacks(self):
        cases = [(["org/nothing"], f"model 'org/nothing' is not at {self.hub.url}, or needs HF_TOKEN"),
                 (["org/tiny@v9"], "model 'org/tiny' at 'v9': the hub has no such revision"),
                 (["org/none:org/tiny"], f"dataset 'org/none' is not at {self.hub.url}"),
                 (["tinny"], "nothing is called 'tinny'; known: minilm-distil, smollm2-135m, reviews")]
        for words, sentence in cases:
            self.assertIn(sentence, self.prepare(*words, expect=1))
        del self.hub.files["org/tiny"]["model.safetensors"]
        subprocess.run(["rm", "-r", self.material, self.folder / "hf"], check=True)
        self.assertRegex(self.prepare("org/tiny", expect=1), "model 'org/tiny': .*404|Entry Not Found")
        self.hub.files["org/data"] = {"notes.txt": b"nothing"}
        self.hub.files["org/tiny"] = base_model()
        self.assertIn("dataset 'org/data' has no file of .parquet, .csv, .tsv, .jsonl, .ndjson for 'train'; it has notes.txt",
                      self.prepare("org/data:org/tiny", expect=1))

    def test_models_that_are_not_built(self):
        self.hub.files["org/tiny"]["config.json"] = json.dumps(CONFIG | {"model_type": "bert"}).encode()
        self.assertIn("model_type 'bert' is not built; known: distilbert, llama", self.prepare("org/tiny", expect=1))

    def test_a_token_is_asked_for_and_used(self):
        self.hub.token = "let-me-in"
        said = self.prepare("org/tiny", expect=1)
        self.assertIn("HF_TOKEN", said)
        self.environment["HF_TOKEN"] = "let-me-in"
        self.prepare("org/tiny")

    def test_offline_uses_the_cache_and_says_what_there_is(self):
        self.environment["HF_HUB_OFFLINE"] = "1"
        self.assertIn("model 'org/tiny' is not in the cache and HF_HUB_OFFLINE is set; without a hub there are minilm-distil",
                      self.prepare("org/tiny", expect=1))
        del self.environment["HF_HUB_OFFLINE"]
        self.prepare("org/tiny", "org/data:org/tiny")
        products = [self.manifest(path)["products"] for path in ("models/org--tiny", "data/org--data/org--tiny")]
        subprocess.run(["rm", "-r", self.material], check=True)
        self.environment["HF_HUB_OFFLINE"] = "1"
        before = len(self.hub.requests)
        self.prepare("org/tiny", "org/data:org/tiny")
        self.assertEqual(len(self.hub.requests), before)
        self.assertEqual([self.manifest(path)["products"] for path in ("models/org--tiny", "data/org--data/org--tiny")],
                         products, "the same bytes")

    def test_a_hub_that_is_not_there(self):
        self.hub.close()
        said = self.prepare("org/tiny", expect=1)
        self.assertIn(self.hub.url, said)
        self.assertIn("model 'org/tiny'", said)

    def test_killed_in_the_middle_the_next_one_finishes(self):
        self.hub.stall = "model.safetensors"
        first = subprocess.Popen(self.words("org/tiny"), env=self.environment, stderr=subprocess.DEVNULL)
        self.assertTrue(self.hub.stalled.wait(60))
        first.send_signal(signal.SIGKILL)
        first.wait()
        self.hub.stall = None
        self.hub.go_on.set()
        self.prepare("org/tiny")

    def test_two_at_once_make_it_once(self):
        self.hub.stall = "model.safetensors"
        both = [subprocess.Popen(self.words("org/tiny"), env=self.environment, stderr=subprocess.PIPE, text=True)
                for _ in range(2)]
        self.assertTrue(self.hub.stalled.wait(60))
        self.hub.go_on.set()
        said = "".join(one.communicate(timeout=60)[1] for one in both)
        self.assertEqual([one.returncode for one in both], [0, 0], said)
        self.assertEqual((said.count(": made"), said.count(": ready")), (1, 1), said)
        self.assertEqual(sum(request.startswith("GET /cdn/") for request in self.hub.requests), 1)

    def test_files_of_ones_own(self):
        self.prepare("org/tiny")
        csv = self.write("mine.csv", "review,stars\n" + "".join(
            f'"{row["text"]}, ""quoted""",{row["label"] + 1}\n' for row in rows(60, 4)))
        self.prepare("mine:org/tiny", "--from", csv)
        facts = self.manifest("data/mine/org--tiny")["facts"]
        self.assertEqual(facts["labels"], ["1", "2", "3", "4", "5"])
        self.assertEqual(sum(split["rows"] for split in facts["splits"].values()), 60)
        text = self.write("words.jsonl", "".join(json.dumps({"body": row["text"], "mood": "good" if row["label"] > 2 else "bad"})
                                                 + "\n" for row in rows(10, 5)))
        self.prepare("moods:org/tiny", "--from", text, "--eval-from", text, "--text", "body", "--label", "mood")
        self.assertEqual(self.manifest("data/moods/org--tiny")["facts"]["labels"], ["bad", "good"])
        path = self.write("own.yaml", "name: own\nrun: {model: org/tiny, dataset: moods, steps: 2}\n")
        self.client("run", path, "--material", self.material)

    def test_bad_files_of_ones_own(self):
        self.prepare("org/tiny")
        def said(name, content, *arguments):
            path = self.folder / name
            path.write_bytes(content)
            return self.prepare("mine:org/tiny", "--from", path, *arguments, expect=1)
        self.assertIn("x.csv has no text column; it has 'a', 'b': name one with --text", said("x.csv", b"a,b\n1,2\n"))
        self.assertIn("x.csv has no label column 'c'; it has 'text', 'label'", said("x.csv", b"text,label\nw2,1\n", "--label", "c"))
        self.assertIn("x.csv:3: 1 fields; 2 are right", said("x.csv", b"text,label\nw2,1\nw3\n"))
        self.assertIn("x.csv is empty", said("x.csv", b""))
        self.assertIn("x.csv is not UTF-8 at byte", said("x.csv", b"text,label\n\xff,1\n"))
        self.assertIn("too few to set a tenth apart", said("x.csv", b"text,label\nw2,1\n"))
        self.assertIn("row 2 is not JSON", said("x.jsonl", b'{"text": "w2", "label": 0}\n{"text": \n'))
        self.assertIn("row 1: 'text' is 3; a text is right", said("x.jsonl", b'{"text": 3, "label": 0}\n'))
        self.assertIn("is no parquet file, or cut off", said("x.parquet", b"PAR1 not"))
        self.assertIn("a file of .parquet, .csv, .tsv, .jsonl, .ndjson is right", said("x.txt", b"hello"))
        self.assertIn("missing", self.prepare("mine:org/tiny", "--from", self.folder / "none.csv", expect=1))
        self.prepare("--from", "x.csv", expect=2)
        self.prepare("--label", "x", expect=2)

    def test_a_model_of_a_folder(self):
        folder = self.folder / "base"
        folder.mkdir()
        for name, content in base_model().items():
            (folder / name).write_bytes(content)
        self.client("prepare", folder, "--material", self.material, state=False)
        self.assertTrue(self.manifest("models/base")["facts"]["new_head"])
        path = self.write("own.yaml", "name: own\nrun:\n  model: base\n  dataset: {name: synthetic, rows: 8, max_length: 8}\n")
        self.client("run", path, "--material", self.material)
        (folder / "model.safetensors").write_bytes(base_model()["model.safetensors"][:-100])
        subprocess.run(["rm", "-r", self.material / "models/base"], check=True)
        self.assertIn("the file is cut off", self.prepare(folder, expect=1))


if __name__ == "__main__":
    sys.path.insert(0, str(PREPARE))
    harness.main()
