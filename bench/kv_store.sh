#!/usr/bin/env bash
# Gets from a node of the remote pool beside its transport alone and beside redis-server (Debian
# redis-server), in turns, on one host's memory and over loopback TCP.
#   bench/kv_store.sh [BUILD] [ROUNDS]
# Wants an idle machine of two or more processors and 3 GB of free memory.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/release}
rounds=${2:-9}
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
"$build/bench/kv_store_bench" --rounds "$rounds"
UCX_TLS=tcp "$build/bench/kv_store_bench" --rounds "$rounds" --network
echo "load after:  $(cut -d' ' -f1-3 /proc/loadavg)"
