#!/usr/bin/env bash
# What ./run makes of its arguments: with stand-ins for cmake, curl and the binary, whose calls it
# records. Usage: run_test.sh SOURCE_DIR
set -euo pipefail
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,scripts,build/run/divisi/cli}
cp "$1/run" "$root/run"
stand_in() {  # path, text of a script
  printf '#!/usr/bin/env bash\n%s\n' "$2" >"$root/$1"
  chmod +x "$root/$1"
}
stand_in scripts/setup.sh 'true'
stand_in bin/cmake 'true'
stand_in bin/curl 'printf "%s\n" "$@" >"'"$root"'/curl"; echo "data: {\"text\":\"A story\"}"'
stand_in build/run/divisi/cli/divisi \
  'printf "%s\n" "$*" >"'"$root"'/served"; echo "listening on http://127.0.0.1:1"; exec sleep 60'

# shellcheck disable=SC2317  # `check` calls what it is told to.
failures=0
check() {  # what, whether
  if "${@:2}"; then return; fi
  echo "FAILED: $1" >&2
  failures=$((failures + 1))
}
run() { PATH="$root/bin:$PATH" timeout 10 "$root/run" "$@" >"$root/said" 2>&1; }
has() { grep -qF -- "$2" "$root/$1"; }
lacks() { ! has "$@"; }

for arguments in '--once --port 0' '--port 0 --once'; do
  # shellcheck disable=SC2086
  check "'$arguments' ends" run $arguments
  check "'$arguments' shows the text" has said 'A story'
  check "'$arguments' serves the bundled model" has served "--model $root/models/tiny-qwen3"
  check "'$arguments' passes the port" has served '--port 0'
  check "'$arguments' keeps --once to itself" lacks served '--once'
  check "'$arguments' needs no key" lacks said 'Authorization'
done
check 'a model of one'\''s own' run --model mine --once
check 'it alone is served' lacks served tiny-qwen3
check 'a key by option' run --api-key 'a key' --once
check 'the key goes to the server' has served "--api-key a key"
check 'curl sends it' has curl 'Authorization: Bearer a key'
check 'the hint has it' has said "-H 'Authorization: Bearer a key'"
DIVISI_API_KEY=secret check 'a key by environment' run --once
check 'the hint has that one' has said "-H 'Authorization: Bearer secret'"
exit $((failures > 0))
