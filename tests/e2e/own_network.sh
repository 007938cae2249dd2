#!/usr/bin/env bash
# run.sh in a network and /run of its own, where the tests make namespaces, bridges and links that
# go with it. Only root may; others skip.
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "skipped: network namespaces need root"; exit 77; }
command -v ip >/dev/null || { echo "skipped: run scripts/setup.sh test for iproute2"; exit 77; }
own=(unshare --net --mount bash -c 'mount -t tmpfs none /run && exec "$@"' sh)
"${own[@]}" ip netns add probe 2>/dev/null ||
  { echo "skipped: this system lets nobody make network namespaces"; exit 77; }
exec "${own[@]}" "$(dirname "$0")/run.sh" "$@"
