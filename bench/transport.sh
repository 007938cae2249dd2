#!/usr/bin/env bash
# The bandwidth of Transport::Write beside ucx_perftest (Debian ucx-utils), in turns on this machine,
# over loopback TCP and between the memories of two processes.
#   bench/transport.sh [TRANSPORT_BENCH] [ROUNDS]
# ucx_perftest sends one buffer of the message's size again and again, which caches keep. So like is
# compared with like: ours with one buffer of that size against its figure for that size, and ours
# with buffers of 512 MiB on both sides against its figure for one message of 512 MiB. The best of its
# tests (put, active message, tag) counts, by their medians over the rounds.
set -euo pipefail
cd "$(dirname "$0")/.."
bench=${1:-build/release/bench/transport_bench}
rounds=${2:-5}
page=1835008  # 16 tokens of the 0.6B shape: 28 layers x 8 heads x 128 x 2 x 2 B x 16
command -v ucx_perftest >/dev/null || { echo "needs ucx_perftest: apt install ucx-utils" >&2; exit 1; }

rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
port=$((20000 + $$ % 20000))

perftest() {  # tls, test, bytes, count, warm-up -> GB/s; empty where the test fails
  port=$((port + 1))
  UCX_TLS=$1 timeout 60 ucx_perftest -p "$port" >/dev/null 2>&1 &
  local server=$!
  sleep 0.4
  UCX_TLS=$1 timeout 60 ucx_perftest 127.0.0.1 -p "$port" -t "$2" -s "$3" -n "$4" -w "$5" -f 2>/dev/null |
    awk 'NF >= 8 { mib = $(NF - 2) } END { if (mib) printf "%.3f\n", mib * 1.048576e-3 }' || true
  kill "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
}

ours() {  # tls, options... -> GB/s
  local tls=$1
  shift
  UCX_TLS=$tls "$bench" --rounds 5 "$@" | awk '{ print $6 }'
}

measure() {  # name, tls of perftest, tls of ours, option of ours, further large tests
  local name=$1 theirs=$2 own=$3 mode=$4 count
  for _ in $(seq "$rounds"); do
    for test in ucp_put_bw ucp_am_bw tag_bw; do
      echo "$name perftest cached:$test $(perftest "$theirs" "$test" $page 300 20)" >>"$rows"
    done
    for test in ${5:-} ucp_am_bw tag_bw; do
      echo "$name perftest large:$test $(perftest "$theirs" "$test" $((512 << 20)) 3 1)" >>"$rows"
    done
    for count in 8 128; do
      echo "$name ours cached:${count}x1.75MiB $(ours "$own" $mode --message $page --count $count --region $page)" >>"$rows"
      echo "$name ours large:${count}x1.75MiB $(ours "$own" $mode --message $page --count $count)" >>"$rows"
    done
    echo "$name ours large:4608x32KiB $(ours "$own" $mode --message 32768 --count 4608)" >>"$rows"
    echo "$name ours large:64x2.25MiB $(ours "$own" $mode --message 2359296 --count 64)" >>"$rows"
  done
}
# Puts over TCP are slow (0.15 GB/s): not with 512 MiB.
measure tcp tcp tcp --network
measure memory sm,tcp tcp "" ucp_put_bw

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
      like = part[1] " " part[3]
      if (part[2] == "perftest" && m > best[like]) best[like] = m
    }
    for (key in values) {
      split(key, part, "[ :]")
      m = median(values[key])
      like = part[1] " " part[3]
      ratio = ""
      if (part[2] == "ours" && best[like]) ratio = sprintf("%4.0f %% of the best perftest", 100 * m / best[like])
      printf "%-7s %-7s %-9s %-13s %7.3f GB/s median %7.3f least %7.3f most  %s\n", part[1], part[3], part[2], part[4], m, least, most, ratio
    }
  }' "$rows" | sort
