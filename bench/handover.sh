#!/usr/bin/env bash
# What of a prompt's hand-over its prefill does not hide: one prefill and one decode worker of this
# machine, random weights of the 0.6B shape, chunked prefill. Prints the time to the first token as a
# client sees it, and from the prefill worker's log the time from its last step to the last page at
# the decode worker (writing) and until that has taken it (taking).
#   bench/handover.sh [BUILD] [TOKENS] [PROMPTS] [THREADS]
# 8k tokens take two minutes and more on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
divisi=$(realpath "${1:-build/release}/divisi/cli/divisi")
tokens=${2:-8192}
prompts=${3:-1}
threads=${4:-$(nproc)}
dir=$(mktemp -d)
up=
finish() {
  [ -n "$up" ] && kill "$up" 2>/dev/null && wait "$up" || true
  rm -rf "$dir"
}
trap finish EXIT

"$divisi" model synth --config examples/configs/qwen3-0.6b.json --out "$dir/model" --seed 1 >/dev/null
port=$((20000 + $$ % 10000))
cat >"$dir/cluster.yaml" <<YAML
model: $dir/model
gateway: {port: $port, control_port: $((port + 10000)), args: [--disaggregate-from, "0"]}
workers:
  - {role: prefill, count: 1, threads: $threads, kv_memory: 2 GiB, args: [--log-level, debug]}
  - {role: decode, count: 1, threads: $threads, kv_memory: 2 GiB}
YAML
"$divisi" up "$dir/cluster.yaml" >"$dir/log" 2>&1 &
up=$!
for _ in $(seq 100); do  # Until a short prompt was handed over; its line is the first of the log.
  curl -sf "http://127.0.0.1:$port/v1/completions" -H 'Content-Type: application/json' \
    -d '{"model": "model", "prompt": "a b c", "max_tokens": 2}' >/dev/null && break
  sleep 0.3
done
echo "load: $(cut -d' ' -f1-3 /proc/loadavg)"
"$divisi" bench serve --base-url "http://127.0.0.1:$port" --num-prompts "$prompts" --max-concurrency 1 \
  --input-len "$tokens" --output-len 4 --timeout 900 --format json --save-detailed \
  --save-result "$dir/result.json" >/dev/null || { tail -20 "$dir/log" >&2; exit 1; }
sed -n 's/.*handed over/handed over/p' "$dir/log"
node -e '
  const fs = require("fs");
  const ttfts = JSON.parse(fs.readFileSync(process.argv[1])).ttfts;
  const seconds = (line, name) => Number(line.match(new RegExp(name + "_seconds=([0-9.e+-]+)"))[1]);
  const lines = fs.readFileSync(process.argv[2], "utf8").split("\n").filter((l) => l.includes("handed over"))
    .slice(-ttfts.length);
  lines.forEach((line, i) => {
    const not_hidden = seconds(line, "writing") + seconds(line, "taking");
    console.log(`TTFT ${ttfts[i].toFixed(3)} s, not hidden ${(1e3 * not_hidden).toFixed(1)} ms: ` +
      `${(100 * not_hidden / ttfts[i]).toFixed(3)} %`);
  });' "$dir/result.json" "$dir/log"
