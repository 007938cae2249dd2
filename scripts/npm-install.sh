#!/usr/bin/env bash
# Installs the npm packages of tests/package.json (independent clients and oracles for the tests),
# and a Node.js of at least version 20 where the system's is older (Debian 12 has 18).
set -euo pipefail
cd "$(dirname "$0")/../tests"

stamp=node_modules/.divisi-installed
if [ -f "$stamp" ] && cmp -s package.json "$stamp"; then exit 0; fi
npm install --no-audit --no-fund --no-package-lock --loglevel=error
major=$(node --version | sed 's/^v\([0-9]*\).*/\1/')
if [ "$major" -lt 20 ]; then
  npm install --no-audit --no-fund --no-package-lock --no-save --loglevel=error node@20
fi
cp package.json "$stamp"
