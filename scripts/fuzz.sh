#!/usr/bin/env bash
# Runs every built fuzzer for some seconds, two at a time, from its seeds in tests/corpus.
#   scripts/fuzz.sh SECONDS [NAME]...
# Fails when one finds something; the input is kept in build/fuzz/findings.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: scripts/fuzz.sh SECONDS [NAME]...}
shift

names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  mapfile -t names < <(find build/fuzz/divisi -name '*_fuzz' -type f -executable -printf '%f\n' | sort)
fi
[ ${#names[@]} -gt 0 ] || { echo "no fuzzers: build the preset 'fuzz' first" >&2; exit 2; }
mkdir -p build/fuzz/findings

fuzz_one() {
  local name=$1 seconds=$2 corpus=build/fuzz/corpus/${1%_fuzz} log=build/fuzz/$1.log
  mkdir -p "$corpus"
  local program
  program=$(find build/fuzz/divisi -name "$name" -type f -executable)
  [ -n "$program" ] || { echo "$name is not built: cmake --build --preset fuzz --target fuzzers" >&2; return 2; }
  if "$program" "$corpus" "tests/corpus/${name%_fuzz}" \
    -max_total_time="$seconds" -timeout=60 -rss_limit_mb=2048 -artifact_prefix=build/fuzz/findings/"$name"- \
    >"$log" 2>&1; then
    echo "$name: $(grep -oE 'Done [0-9]+ runs in [0-9]+ second' "$log" | tail -1)(s), no finding"
  else
    echo "$name: FOUND SOMETHING, see $log and build/fuzz/findings" >&2
    tail -30 "$log" >&2
    return 1
  fi
}
export -f fuzz_one
printf '%s\n' "${names[@]}" | xargs -P2 -I{} bash -c 'fuzz_one "$1" "$2"' _ {} "$seconds"
