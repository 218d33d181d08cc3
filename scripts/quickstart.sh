#!/usr/bin/env bash
# From a bare clone to a table: installs what is missing, builds, fetches a small model and real reviews, trains with
# every strategy, then shows that it learns. The first time about 15 minutes on two cores; again about 3.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly state=.regatta/quickstart
say() { echo; echo "== $* ($(date -u +%H:%M:%S))"; }

say "set-up"
scripts/setup.sh

say "build"
cmake -S . -B build -G Ninja >build.log || { cat build.log; exit 1; }
ninja -C build regatta regattad regatta-worker | tail -n 1
rm -f build.log

say "models and data"
build/bin/regatta prepare

say "every strategy on two ranks: equal losses, different bytes, memory and speed"
build/bin/regatta run experiments/quickstart.yaml --state $state --slots 2
echo "One run each: these speeds are not a ranking."

say "does it learn? 100 steps, then all 1,437 evaluation rows (chance is 20 %)"
build/bin/regatta run experiments/quickstart_proof.yaml --state $state --slots 2

cat <<END

Where things are:
  database     $state/regatta.db      build/bin/regatta sql --state $state "select * from results"
  logs         $state/runs            build/bin/regatta logs 1 --state $state
  status page  while a daemon runs: build/bin/regattad --state $state --http 8080
Next: README.md explains the experiment file; build/bin/regatta --help the rest.
END
