"""What a machine does to a run: too little memory, few cores, a clock that is set back, a file system or a database that
is not what it should be."""
import json
import os
import pathlib
import sqlite3
import subprocess

import harness
from processes import marked, wait_until

FAKETIME = pathlib.Path("/usr/lib") / f"{os.uname().machine}-linux-gnu" / "faketime/libfaketimeMT.so.1"
MIB = 1 << 20


class MachineTest(harness.Case):
    def small_group(self, limit):
        """A control group with little memory; the daemon's is in it. The path of its list of processes."""
        groups = dict(line.split(":", 2)[1:] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines())
        name = f"regatta-test-{os.getpid()}"
        mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
        for _, folder, kind, options, *_ in mounts:
            try:
                if kind == "cgroup" and "memory" in options.split(","):
                    group = pathlib.Path(folder + groups["memory"]) / name
                    group.mkdir()
                    self.addCleanup(group.rmdir)
                    (group / "memory.limit_in_bytes").write_text(str(limit))
                    return group / "cgroup.procs"
                if kind == "cgroup2" and "memory" in (pathlib.Path(folder + groups[""]) / "cgroup.controllers").read_text().split():
                    above = pathlib.Path(folder + groups[""])
                    (above / "cgroup.subtree_control").write_text("+memory")
                    group = above / name
                    (group / "daemon").mkdir(parents=True)
                    self.addCleanup(group.rmdir)
                    self.addCleanup((group / "daemon").rmdir)
                    (group / "cgroup.subtree_control").write_text("+memory")
                    (group / "memory.max").write_text(str(limit))
                    return group / "daemon/cgroup.procs"
            except OSError as e:
                self.skipTest(f"no control group with a memory limit can be made here: {e}")
        self.skipTest("no control group with a memory limit can be made here: no such file system")
        return None

    def test_the_out_of_memory_killer_is_recognised(self):
        procs = self.small_group(limit=200 * MIB)
        self.start_daemon("--slots", "2", before=lambda: procs.write_text(str(os.getpid())))
        self.addCleanup(self.stop_daemon)
        path = self.experiment("  ranks: 2\n  strategy: simple_ddp\n  chaos: {rank: 1, at_step: 0, what: allocate 400MiB}\n")
        self.submit(path, "--wait", expect=10)
        self.assertEqual(self.rows("select reason, sentence, failed_rank from failures"),
                         [{"reason": "oom_host", "failed_rank": 1,
                           "sentence": "rank 1 was killed by the system's out-of-memory killer: rank 1 of 2 joined"}])
        self.assertEqual(marked(self.state), [])
        self.stop_daemon()
        self.assertEqual([entry for entry in procs.parent.rglob("regatta-*") if entry.is_dir()], [], "no group is left")

    def test_each_rank_has_cores_of_its_own(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one core alone cannot be divided")
        worker = self.write("worker.sh", f"#!/bin/sh\ngrep Cpus_allowed_list /proc/self/status > {self.folder}/cores.$RANK\n"
                            f"exec {harness.STUB}\n", executable=True)
        self.start_daemon("--slots", "2", worker=worker)
        if "not_pinning" in (self.folder / "regattad.log").read_text():
            self.skipTest("another regattad of this machine pins its ranks")
        self.submit(self.experiment("  ranks: 2\n  strategy: simple_ddp\n  threads_per_rank: 1\n",
                                    "matrix: {pin: [auto, none]}\n"), "--wait")
        seen = [(self.folder / f"cores.{rank}").read_text() for rank in range(2)]
        self.assertEqual(seen[0], seen[1], "the last run was not pinned")
        self.submit(self.experiment("  ranks: 2\n  strategy: simple_ddp\n  threads_per_rank: 1\n"), "--wait")
        seen = [(self.folder / f"cores.{rank}").read_text() for rank in range(2)]
        self.assertNotEqual(seen[0], seen[1])
        self.assertEqual(self.rows("select shared_cores from results group by 1"), [{"shared_cores": 0}])
        second = subprocess.Popen([harness.BINARIES / "regattad", "--state", self.folder / "other", "--worker", harness.STUB,
                                   "--http", "-1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env=self.environment)
        self.assertTrue(second.stdout.readline())
        second.terminate()
        self.assertIn("event=not_pinning: another regattad", second.communicate(timeout=60)[1])

    def test_a_clock_that_is_set_back(self):
        if not FAKETIME.exists():
            self.skipTest(f"{FAKETIME} is not installed (package faketime)")
        clock = self.write("clock", "+0")
        self.environment.update(LD_PRELOAD=str(FAKETIME), FAKETIME_TIMESTAMP_FILE=str(clock), FAKETIME_NO_CACHE="1",
                                FAKETIME_DONT_FAKE_MONOTONIC="1", FAKETIME_DONT_RESET="1")
        self.start_daemon()
        before = self.submit(self.experiment("  chaos: {rank: 0, at_step: 0, what: slow 1500ms}\n"))
        wait_until(lambda: self.rows("select state from results")[0]["state"] == "RUNNING")
        clock.write_text("-3600")
        self.client("wait", str(before[0]))
        self.submit(self.experiment(), "--wait")
        rows = self.rows("select run, state, submitted_us, started_us, ended_us, attempt_seconds from results order by run")
        self.assertEqual([row["state"] for row in rows], ["SUCCEEDED"] * 2)
        self.assertLess(rows[0]["started_us"] + 1e6, rows[0]["ended_us"], "it took longer than a second")
        self.assertLess(rows[0]["ended_us"], rows[1]["submitted_us"] + 1e6)
        self.assertGreater(rows[0]["attempt_seconds"], 1.5)
        self.assertIn("event=clock_set_back seconds=3600", (self.folder / "regattad.log").read_text())
        self.stop_daemon()
        self.start_daemon()
        self.assertIn("the newest experiment was submitted later than now", (self.folder / "regattad.log").read_text())
        self.submit(self.experiment("", "limits: {queue_timeout: 1h, timeout: 1h}\n"), "--wait")

    def test_a_database_of_a_newer_version(self):
        self.state.mkdir()
        sqlite3.connect(self.state / "regatta.db").execute("pragma user_version = 99").close()
        kept = (self.state / "regatta.db").read_bytes()
        done = subprocess.run([harness.BINARIES / "regattad", "--state", self.state, "--worker", harness.STUB],
                              capture_output=True, text=True, env=self.environment, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "schema version 99; this program knows [0-9]+: use a newer regatta, or another state folder")
        self.assertEqual((self.state / "regatta.db").read_bytes(), kept, "it was not touched")

    def test_a_network_file_system(self):
        done = subprocess.run([harness.BINARIES / "regattad", "--state", self.state, "--worker", harness.STUB],
                              capture_output=True, text=True, check=False,
                              env={**self.environment, "LD_PRELOAD": str(harness.BINARIES / "libnetwork_disk.so")})
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"regattad: state folder '{self.state}' is on a network file system (NFS), where SQLite's locks "
                          "are not safe; name a local one with --state\n"))

    def test_facts_of_the_running_process(self):
        """Needs the real worker: what it says of itself agrees with what the system says."""
        worker = harness.BINARIES / "regatta-worker"
        if not worker.exists():
            self.skipTest("regatta-worker was not built")
        self.start_daemon("--slots", "2", worker=worker)
        self.submit(self.experiment("  ranks: 2\n  strategy: simple_ddp\n  threads_per_rank: 1\n"), "--wait")
        facts = {row["name"]: row["text"] for row in json.loads(self.client("show", "1", "--json").stdout)["facts"]
                 if row["rank"] == 1}
        notes = subprocess.run(["readelf", "-n", worker], capture_output=True, text=True, check=True).stdout
        self.assertIn(f"Build ID: {facts['binary']}", notes)
        head = subprocess.run(["git", "-C", harness.SOURCE, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        if head.returncode == 0:
            self.assertRegex(facts["commit"], "^[0-9a-f]{40}( dirty [0-9a-f]{12})?$")
        self.assertEqual(int(facts["memory_bytes"]), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        self.assertEqual({name: facts[name] for name in ("threads", "parameter_dtype", "backend", "interface",
                                                         "gpu", "host")},
                         {"threads": "1", "parameter_dtype": "Float", "backend": "gloo",
                          "interface": "127.0.0.1", "gpu": "none", "host": os.uname().nodename})
        self.assertTrue(facts["cpu"] and facts["cores"] and facts["libtorch"])


if __name__ == "__main__":
    harness.main()
