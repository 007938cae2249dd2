#!/usr/bin/env bash
# Installs the Debian packages that a build needs, and with `test` those that the tests need.
#   scripts/setup.sh [build|test|fuzz]...
# Installs nothing where nothing is missing. Asks before it needs root on a terminal; elsewhere it
# installs when it is root and otherwise says what to run.
set -euo pipefail

build=(g++ cmake ninja-build ccache mold curl ca-certificates
  libhwy-dev libsimdjson-dev libfmt-dev libboost1.81-dev libpcre2-dev libutf8proc-dev libcli11-dev
  libssl-dev libyaml-cpp-dev libucx-dev libxxhash-dev libzmq3-dev
  libhiredis-dev)
test=(libgtest-dev libgmock-dev libbenchmark-dev git nodejs npm etcd-server openssl iproute2
  python3-yaml redis-server)
fuzz=(clang-14 libclang-rt-14-dev)

wanted=()
for set in "${@:-build}"; do
  case $set in
    build) wanted+=("${build[@]}") ;;
    test) wanted+=("${test[@]}") ;;
    fuzz) wanted+=("${fuzz[@]}") ;;
    *) echo "setup.sh: no package set '$set' (build, test or fuzz)" >&2; exit 2 ;;
  esac
done

# Debian's nodejs brings npm as a package of its own; other builds of Node.js include it.
have() {
  case $1 in
    nodejs) command -v node >/dev/null ;;
    npm) command -v npm >/dev/null ;;
    curl | git | ccache | mold | cmake) command -v "$1" >/dev/null ;;
    *) dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed ;;
  esac
}

missing=()
for package in "${wanted[@]}"; do
  have "$package" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "Divisi needs these Debian packages: ${missing[*]}"
install=(apt-get install -y --no-install-recommends "${missing[@]}")
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null || [ ! -t 0 ]; then
    echo "Run as root, then try again:  apt-get update && ${install[*]}" >&2
    exit 1
  fi
  install=(sudo env DEBIAN_FRONTEND=noninteractive "${install[@]}")
fi
if [ -t 0 ]; then
  read -r -p "Install them now with '${install[*]}'? [Y/n] " answer
  case ${answer:-y} in [Yy]*) ;; *) echo "Nothing was installed." >&2; exit 1 ;; esac
fi
update=("${install[@]:0:$((${#install[@]} - ${#missing[@]} - 3))}" update)
export DEBIAN_FRONTEND=noninteractive
"${update[@]}" >/dev/null
"${install[@]}" >/dev/null
echo "Installed."
