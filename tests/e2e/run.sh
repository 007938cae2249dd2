#!/usr/bin/env bash
# Runs test files of this folder with Node's own runner, under a time limit; seven times that with
# DIVISI_SOAK=1, which makes the soaks longer.
#   tests/e2e/run.sh DIVISI-BINARY SECONDS FILE...
set -euo pipefail
DIVISI=$(realpath "${1:?usage: run.sh DIVISI-BINARY SECONDS FILE...}") seconds=${2:?}
export DIVISI
shift 2
[ "${DIVISI_SOAK:-}" = 1 ] && seconds=$((7 * seconds))
cd "$(dirname "$0")"
modules=../node_modules
# ctest counts 77 as skipped.
[ -d "$modules/openai" ] || { echo "skipped: run scripts/npm-install.sh for npm's openai"; exit 77; }
node=node
[ -x "$modules/.bin/node" ] && node=$modules/.bin/node
exec timeout --kill-after=10 "$seconds" "$node" --test --test-reporter=spec "$@"
