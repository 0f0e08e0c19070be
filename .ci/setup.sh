#!/usr/bin/env bash
# Makes .venv from a hashed lock, and finds a Java that Spark runs on. Called by every target of the
# Makefile; it does something only when a lock or pyproject.toml have changed.
#   setup.sh                                          what runs in production, by requirements.lock
#   setup.sh development                              that and the tools of tests and benchmarks, by requirements-test.lock
#   ... [postgresql] [chromium] [redis]               and those: for the cluster, the tests in a browser, those of leases
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "$*" >&2; }
stop() { say "$*"; exit 1; }

# pip takes its certificates from PIP_CERT, uv from SSL_CERT_FILE; behind a company proxy only one may be set.
if [ -z "${SSL_CERT_FILE:-}" ] && [ -n "${PIP_CERT:-}" ]; then
  export SSL_CERT_FILE="$PIP_CERT"
fi

find_python() {
  local candidate path found=""
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    # Not the one that this script makes: it may be first on the PATH, and has no pip.
    for path in $(type -aP "$candidate" | grep -vF "$PWD/.venv/"); do
      # Another project's environment may be first, too; one with pip is preferred.
      "$path" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
      found="${found:-$path}"
      if "$path" -c 'import pip' 2>/dev/null; then
        printf '%s\n' "$path"
        return
      fi
    done
  done
  if [ -n "$found" ]; then
    printf '%s\n' "$found"
    return
  fi
  stop "Skewless needs Python 3.11 or newer, and none is on the PATH: install one (Debian: apt-get install python3 python3-venv), or name one with PYTHON=/path/to/python3."
}

lock=requirements.lock
if [ "${1:-}" = development ]; then
  lock=requirements-test.lock
  shift
fi

# The second lock has all that the first one has: an environment for development serves both.
stamp() { { cat "$@" pyproject.toml .ci/setup.sh; echo "$@"; } | sha256sum; }
made_by() { [ -f .venv/stamp ] && [ "$(cat .venv/stamp)" = "$(stamp "$1")" ]; }

make_venv() {
  if made_by "$lock" || made_by requirements-test.lock; then
    return
  fi
  local python
  python="$(find_python)"
  if [ ! -x .venv/bin/python ]; then
    say "Making .venv with $("$python" --version) ..."
    # Without its own pip: Debian ships that in python3-venv, which may be missing. Any pip will do.
    "$python" -m venv --clear --without-pip .venv
  fi
  "$python" -m pip --version >/dev/null 2>&1 ||
    stop "Skewless needs pip once, to install uv: install it (Debian: apt-get install python3-pip), then try again."
  say "Installing $lock into .venv ..."
  # uv comes from pip, held to the same lock: its entry is the line `uv==...` and the hashes below it.
  local uv_entry
  uv_entry="$(mktemp)"
  awk '/^[^ #]/ { mine = /^uv==/ } mine && !/^ *#/' "$lock" >"$uv_entry"
  "$python" -m pip --python .venv/bin/python install --quiet --disable-pip-version-check --no-deps --require-hashes -r "$uv_entry" </dev/null
  rm -f "$uv_entry"
  .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --require-hashes -r "$lock" </dev/null
  .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation -e . </dev/null
  stamp "$lock" >.venv/stamp
}

# Spark 4.3 needs Java 17 with jdk.incubator.vector, which the JDKs of PyPI packages lack.
fit_java() {
  [ -x "$1/bin/java" ] && "$1/bin/java" --list-modules 2>/dev/null | grep -q '^jdk\.incubator\.vector@' &&
    [ "$("$1/bin/java" --version 2>/dev/null | awk 'NR == 1 { split($2, v, "."); print v[1] }')" -ge 17 ]
}

java_home() {
  local on_path candidate
  if [ -n "${JAVA_HOME:-}" ] && fit_java "$JAVA_HOME"; then
    printf '%s\n' "$JAVA_HOME"
    return
  fi
  if on_path="$(command -v java)"; then
    candidate="$(dirname "$(dirname "$(readlink -f "$on_path")")")"
    if fit_java "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
  fi
  for candidate in /usr/lib/jvm/*17* /usr/lib/jvm/*21* /usr/lib/jvm/*; do
    if fit_java "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

find_java() {
  if [ -f .venv/environment.sh ] && fit_java "$(sed -n "s/^export JAVA_HOME='\(.*\)'$/\1/p" .venv/environment.sh)"; then
    return
  fi
  local home
  if ! home="$(java_home)"; then
    local advice="Spark needs Java 17 or newer, and none was found: apt-get install openjdk-17-jre-headless, or set JAVA_HOME."
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
      stop "$advice"
    fi
    say "Installing openjdk-17-jre-headless ..."
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless; } \
      </dev/null >.venv/java.log 2>&1 || { tail -5 .venv/java.log >&2; stop "$advice"; }
    home="$(java_home)" || stop "$advice"
  fi
  cat >.venv/environment.sh <<EOF
# Written by .ci/setup.sh, read by the Makefile.
export JAVA_HOME='$home'
export PATH='$PWD/.venv/bin':"\$PATH"
export PYSPARK_PYTHON='$PWD/.venv/bin/python'
# Each step and each worker imports thousands of modules: they are compiled once, and not by each process anew.
unset PYTHONDONTWRITEBYTECODE
EOF
}

# What only some commands need comes from Debian if we may install it. If not, those commands say what is missing.
install() {
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "Installing $* ..."
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } \
      </dev/null >.venv/apt.log 2>&1 || { tail -5 .venv/apt.log >&2; say "apt-get install $* failed."; }
  fi
}

find_postgresql() {
  if [ -x /usr/lib/postgresql/15/bin/initdb ] || command -v initdb >/dev/null 2>&1; then return; fi
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    # Its binaries only: we make a database of our own, and start it ourselves.
    mkdir -p /etc/postgresql-common/createcluster.d
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/skewless.conf
  fi
  install postgresql-15
}

find_redis() {
  if command -v redis-server >/dev/null 2>&1; then return; fi
  # In a runlevel of one, its package starts no server.
  RUNLEVEL=1 install redis-server
  # Its program only: the tests start servers of their own.
  if command -v redis-server >/dev/null 2>&1 && [ -d /run/systemd/system ]; then
    systemctl disable --quiet --now redis-server || say "systemctl disable redis-server failed."
  fi
}

find_chromium() {
  if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then return; fi
  install chromium chromium-driver
}

make_venv
find_java
for extra in "$@"; do
  "find_$extra"
done
