#!/usr/bin/env bash
# The bandwidth of pages of KV beside ucx_perftest (Debian ucx-utils), in turns on this machine, over
# loopback TCP and between the memories of two processes.
#   bench/transport.sh [BUILD] [ROUNDS]
# A page is 16 tokens of the 0.6B shape; 8, 128 and 512 pages are prompts of 128, 2k and 8k tokens:
# by a Transport, and by PageCarriers with their threads, as workers send them. Against the best of
# perftest's tests (put, active message, tag) with messages of a page's size, by medians over the
# rounds. "large": buffers of 512 MiB on both sides (perftest's too, by a preloaded library, except for
# puts, which are one message of that size); "cached": one page again and again.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
rounds=${2:-5}
page=1835008  # 28 layers x 8 heads x 128 x 2 x 2 B x 16
command -v ucx_perftest >/dev/null || { echo "needs ucx_perftest: apt install ucx-utils" >&2; exit 1; }
bench=$build/bench/transport_bench
ring=$(realpath "$build/bench/libperftest_ring.so")

rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
port=$((20000 + $$ % 20000))

# Waits until the processors were idle for a moment, at most 5 s: others' work makes both sides slow,
# and a perftest that polls slower than us.
quiet() {
  local end=$((SECONDS + 5)) before after
  while [ $SECONDS -lt $end ]; do
    before=$(awk 'NR == 1 { print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9 }' /proc/stat)
    sleep 0.25
    after=$(awk 'NR == 1 { print $5 + $6, $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9 }' /proc/stat)
    awk -v b="$before" -v a="$after" 'BEGIN { split(b, x); split(a, y)
      exit !((y[1] - x[1]) >= 0.85 * (y[2] - x[2])) }' && return
  done
}

perftest() {  # tls, test, bytes, count, library -> GB/s; empty where the test fails
  port=$((port + 1))
  quiet
  UCX_TLS=$1 LD_PRELOAD=${5:-} timeout 60 ucx_perftest -p "$port" >/dev/null 2>&1 &
  local server=$!
  sleep 0.4
  UCX_TLS=$1 LD_PRELOAD=${5:-} timeout 60 \
    ucx_perftest 127.0.0.1 -p "$port" -t "$2" -s "$3" -n "$4" -w $(($4 / 15 + 1)) -f 2>/dev/null |
    awk 'NF >= 8 { mib = $(NF - 2) } END { if (mib) printf "%.3f\n", mib * 1.048576e-3 }' || true
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
}

ours() {  # options... -> GB/s
  quiet
  UCX_TLS=tcp "$bench" --rounds 5 --message $page "$@" | awk '{ print $7 }'
}

measure() {  # name, tls of perftest, option of ours
  local name=$1 tls=$2 mode=$3 count
  for _ in $(seq "$rounds"); do
    for test in ucp_am_bw tag_bw; do
      echo "$name large perftest:$test $(perftest "$tls" $test $page 300 "$ring")" >>"$rows"
    done
    # Puts over TCP are slow: UCX makes them of fragments.
    if [ "$name" = memory ]; then
      echo "$name large perftest:ucp_put_bw $(perftest "$tls" ucp_put_bw $((512 << 20)) 3)" >>"$rows"
    fi
    for count in 8 128 512; do
      echo "$name large transport:$count $(ours $mode --count $count)" >>"$rows"
      echo "$name large carrier:$count $(ours $mode --carrier --count $count)" >>"$rows"
    done
    for test in ucp_put_bw ucp_am_bw tag_bw; do
      echo "$name cached perftest:$test $(perftest "$tls" $test $page 300)" >>"$rows"
    done
    echo "$name cached transport:128 $(ours $mode --count 128 --region $page)" >>"$rows"
  done
}
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
measure tcp tcp --network
measure memory sm,tcp ""
echo "load after:  $(cut -d' ' -f1-3 /proc/loadavg)"

awk '
  NF == 4 { key = $1 " " $2 " " $3; values[key] = values[key] " " $4 }
  function median(list,  v, n, i, j, t) {
    n = split(list, v, " ")
    for (i = 1; i <= n; ++i) for (j = i + 1; j <= n; ++j) if (v[j] < v[i]) { t = v[i]; v[i] = v[j]; v[j] = t }
    least = v[1]; most = v[n]
    return v[int((n + 1) / 2)]
  }
  END {
    for (key in values) {
      split(key, part, "[ :]")
      m = median(values[key])
      like = part[1] " " part[2]
      if (part[3] == "perftest" && m > best[like]) best[like] = m
    }
    for (key in values) {
      split(key, part, "[ :]")
      m = median(values[key])
      like = part[1] " " part[2]
      what = part[4]
      ratio = ""
      if (part[3] != "perftest") {
        what = part[4] " pages"
        if (best[like]) ratio = sprintf("%4.0f %% of the best perftest", 100 * m / best[like])
      }
      printf "%-7s %-7s %-9s %-10s %7.3f GB/s median %7.3f least %7.3f most  %s\n", part[1], part[2], part[3], what, m, least, most, ratio
    }
  }' "$rows" | sort
