#!/usr/bin/env bash
# Makes Airflow ready for its first start; run again, it changes nothing that is there.
set -euo pipefail

airflow db migrate
python "$(dirname "$0")/make_lake.py"
airflow pools set spark "$SKEWLESS_SPARK_SLOTS" "Spark applications that may run at once"
# The password goes to standard input, twice, because arguments are visible in the list of processes.
printf '%s\n%s\n' "$SKEWLESS_ADMIN_PASSWORD" "$SKEWLESS_ADMIN_PASSWORD" |
  airflow users create --username admin --role Admin --firstname Skewless --lastname admin --email admin@localhost
if [ "$SKEWLESS_DEMO_CORPUS" = yes ]; then
  cd "$(dirname "$0")/../.." && python -m examples.demo_corpus
fi
