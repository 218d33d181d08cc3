#!/usr/bin/env bash
# Builds everything and runs every tier of tests that this machine can. Ends with ctest's summary.
#
#   scripts/test.sh          lint, sanitizers, all tests
#   scripts/test.sh --fast   no sanitizers
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
say() { echo "== $* ($(date -u +%H:%M:%S))"; }

build() {  # folder, targets (all where none is named), -D options...
  local folder=$1 targets=$2
  shift 2
  cmake -S . -B "$folder" -G Ninja "$@" >"$folder.log" 2>&1 || { cat "$folder.log"; return 1; }
  # shellcheck disable=SC2086
  ninja -C "$folder" -j "$jobs" $targets >"$folder.log" 2>&1 || { tail -n 60 "$folder.log"; return 1; }
  rm -f "$folder.log"
}

say "build"
build build ""

say lint
scripts/lint

if [ "${1:-}" != --fast ]; then
  unit="plan_test chaos_test shapes_test experiment_test core_test services_test cli_test"
  say "address and undefined-behaviour sanitizers: unit tier"
  build build-asan "$unit" -DREGATTA_WORKER=OFF -DREGATTA_SANITIZE=address,undefined
  ctest --test-dir build-asan -L unit --output-on-failure --no-tests=error
  say "thread sanitizer: the daemon's part without gRPC"
  build build-tsan "core_test" -DREGATTA_WORKER=OFF -DREGATTA_SANITIZE=thread
  ctest --test-dir build-tsan -R '^core_test$' --output-on-failure --no-tests=error
fi

say "all tests; skipped here: gpu (scripts/gpu_check, on a machine with one), slurm (not built yet)"
ctest --test-dir build --output-on-failure --no-tests=error
