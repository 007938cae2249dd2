#!/usr/bin/env bash
# Runs the commands that the docs show and writes what they print, so that no page goes stale.
#   scripts/docs.sh [--check] [--divisi PATH] [FILE...]
# In a block that opens with ```console, each line "$ COMMAND" is run from the root of the source tree
# with `divisi` in the PATH; the lines that follow it are replaced by its output. --check changes
# nothing and fails with the difference. Without FILE: every page that has such blocks.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
check=
divisi=build/release/divisi/cli/divisi
while [[ ${1-} == --* ]]; do
  case $1 in
    --check) check=1 ;;
    --divisi) divisi=$2; shift ;;
    *) echo "docs.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
[[ -x $divisi ]] || { echo "docs.sh: no $divisi; build it, or give --divisi PATH" >&2; exit 2; }
PATH="$(cd "$(dirname "$divisi")" && pwd):$PATH"
export PATH LC_ALL=C
if (($#)); then files=("$@"); else mapfile -t files < <(grep -l '^```console$' README.md docs/*.md); fi

# The page with the outputs of today.
render() {
  local line inside=
  while IFS= read -r line || [[ -n $line ]]; do
    if [[ -z $inside ]]; then
      printf '%s\n' "$line"
      if [[ $line == '```console' ]]; then inside=1; fi
    elif [[ $line == '```' ]]; then
      printf '%s\n' "$line"
      inside=
    elif [[ $line == '$ '* ]]; then
      printf '%s\n' "$line"
      bash -c "${line#'$ '}" </dev/null 2>&1 | sed 's/[[:space:]]*$//' ||
        { echo "docs.sh: $1: failed: $line" >&2; return 1; }
    fi
  done <"$1"
}

stale=0
new=$(mktemp)
trap 'rm -f "$new"' EXIT
for file in "${files[@]}"; do
  render "$file" >"$new"
  if cmp -s "$file" "$new"; then continue; fi
  if [[ -n $check ]]; then
    diff -u --label "$file" --label "$file, as its commands print now" "$file" "$new" || stale=1
  else
    cat "$new" >"$file"
    echo "updated $file"
  fi
done
if ((stale)); then
  echo "The docs show what the commands no longer print. To update: scripts/docs.sh" >&2
  exit 1
fi
