#!/bin/sh
# Runs a Node.js script that needs an npm package:
#   node.sh PACKAGE SCRIPT [ARGUMENT]...
# Ends with 77, which ctest counts as skipped, where scripts/npm-install.sh has not run yet.
tests=$(cd "$(dirname "$0")/.." && pwd)
if [ ! -d "$tests/node_modules/$1" ]; then
  echo "skipped: the npm package $1 is not installed; run scripts/npm-install.sh"
  exit 77
fi
shift
# Debian 12 has Node.js 18; where that is the system's, the script installs a newer one here.
PATH="$tests/node_modules/.bin:$PATH" exec node "$@"
