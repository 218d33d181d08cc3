"""Sixteen gangs of two ranks at once, twenty times over: all meet, none meets a foreign rank."""
import harness


class GangsTest(harness.Case):
    def test_sixteen_gangs_at_once_twenty_times(self):
        self.start_daemon("--slots", "32")
        seeds = ", ".join(str(seed) for seed in range(320))
        path = self.experiment("  ranks: 2\n  steps: 2\n",
                               f"matrix: {{strategy: [simple_ddp], seed: [{seeds}]}}\nlimits: {{max_parallel: 16}}\n")
        self.submit(path, "--wait")
        self.assertEqual(self.rows("select state, count(*) as n from results group by state"),
                         [{"state": "SUCCEEDED", "n": 320}])
        most = self.rows("""
            with edges as (select started_us as at, 1 as step from runs union all select ended_us, -1 from runs),
                 load as (select sum(step) over (order by at, step) as n from edges)
            select max(n) as most from load""")[0]["most"]
        print(f"gangs at once: {most}", flush=True)
        self.assertEqual(most, 16)


if __name__ == "__main__":
    harness.main()
