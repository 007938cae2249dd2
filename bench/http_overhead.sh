#!/usr/bin/env bash
# What the HTTP layer adds to the first token and to each further one, on the tiny model: the
# client's times minus the engine's own, of the same requests in one run (docs/bench.md).
#   bench/http_overhead.sh [DIVISI-BINARY] [MODEL]
set -euo pipefail
cd "$(dirname "$0")/.."
divisi=${1:-build/release/divisi/cli/divisi}
model=${2:-models/tiny-qwen3}

log=$(mktemp)
# One compute thread leaves a core to the client, the gateway and the kernel.
"$divisi" serve --model "$model" --port 0 --threads 1 >"$log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -f "$log"' EXIT
for _ in $(seq 300); do
  url=$(grep -oE 'http://[0-9.:]+' "$log" | head -1) && [ -n "$url" ] && break
  kill -0 "$server" 2>/dev/null || { cat "$log" >&2; exit 1; }
  sleep 0.1
done
[ -n "${url:-}" ] || { cat "$log" >&2; exit 1; }

measure() {  # title, options...
  local title=$1
  shift
  echo "== $title"
  "$divisi" bench serve --base-url "$url" --warmup 20 --engine-times --metric-percentiles 50,99 \
    --input-len 64 --output-len 100 "$@" | grep -E 'Successful|Failed|TTFT|TPOT|Added|Output token thr'
}
measure "one client" --num-prompts 100 --max-concurrency 1
measure "16 clients, 20 requests a second" --num-prompts 200 --request-rate 20 --max-concurrency 16
