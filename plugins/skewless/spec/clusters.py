"""The Spark clusters of a job: how steps are submitted, and how several of them share a run by leases."""

import re
from typing import Annotated, Any

from pydantic import Field, field_validator

from skewless.document import Section, unmet
from skewless.errors import names_secret, without_secrets

#: The connection of Airflow to Spark of a job that names none.
DEFAULT_CONNECTION = "spark_default"
SUBMIT, PACKAGE, SPARK_SUBMIT = "spark.submit", "package", "spark-submit"
#: Who submits steps: by default a connection to Spark says how, else a module of ``skewless_airflow.runners``.
RUNNERS = (SPARK_SUBMIT, "yarn", "livy", "emr_serverless", "databricks", "dataproc", "kubernetes")
#: A setting within a value, as in ``-Djavax.net.ssl.trustStorePassword=x`` and ``Authorization: Bearer x``.
_WITHIN = re.compile(r"([A-Za-z][\w.-]*)[\"']?\s*[=:](?!//)")

_ConfName = Annotated[str, Field(pattern=r"^spark\.[A-Za-z0-9_.-]{1,200}$")]
_Plain = str | bool | int | float


class SparkSettings(Section):
    """How Airflow submits the Spark steps; it may change while a run goes on, and is no part of a run's documents.

    What is not given is left to the connection and to Spark.
    """

    submit: dict[str, Any] = Field(
        default={},
        max_length=100,
        examples=[{"conn_id": "spark_east", "pool": "spark"}, {"runner": "livy", "livy_conn_id": "livy_night"}],
        json_schema_extra={"properties": {"runner": {"enum": list(RUNNERS)}, PACKAGE: {"type": "string"}}},
    )
    """runner: who submits the steps, by default spark-submit; package: the folder that skewless package has written for
    it; pool: Airflow's for the steps, by default that of SKEWLESS_POOL; all else is given to the operator of Airflow's
    provider as its arguments."""
    conf: dict[_ConfName, str] = Field(
        default={},
        max_length=200,
        examples=[{"spark.driver.memory": "4g", "spark.executor.cores": 4}],
        json_schema_extra={"additionalProperties": False},
    )
    """Settings of Spark, without secrets."""

    @property
    def pool(self) -> str:
        """The pool of the steps; empty for the one of all jobs."""
        return str(self.submit.get("pool", ""))

    @property
    def on_spark_submit(self) -> bool:
        """Whether a connection to Spark says how steps are run."""
        return bool(self.submit.get("runner", SPARK_SUBMIT) == SPARK_SUBMIT)

    @field_validator("submit")
    @classmethod
    def _known_and_without_secrets(cls, submit: dict[str, Any]) -> dict[str, Any]:
        service = submit.get("runner", SPARK_SUBMIT)
        if service not in RUNNERS:
            raise unmet(f"a runner among {', '.join(RUNNERS)}", f"{service!r}"[:80])
        _refuse_secrets(submit)
        return submit

    @field_validator("conf", mode="before", json_schema_input_type=dict[_ConfName, _Plain])
    @classmethod
    def _conf_as_text(cls, conf: Any) -> Any:
        if not isinstance(conf, dict):
            return conf
        return {
            name: str(value).lower() if isinstance(value, bool | int | float) else value for name, value in conf.items()
        }

    @field_validator("conf")
    @classmethod
    def _without_what_is_elsewhere(cls, conf: dict[str, str]) -> dict[str, str]:
        _refuse_secrets(conf)
        for name in conf:
            field = _FIELD_OF.get(name) or ("left as it is, since it can change a result" if is_fixed(name) else "")
            if field:
                raise unmet(f"no {name}, which is {field}", f"{conf[name][:80]!r}")
        return conf


def _refuse_secrets(value: Any, name: str = "") -> None:
    if isinstance(value, dict):
        for inner, of_it in value.items():
            _refuse_secrets(of_it, inner)
    elif isinstance(value, list):
        for of_it in value:
            _refuse_secrets(of_it, name)
    elif isinstance(value, str) and value not in {"true", "false"}:
        named = (name, *_WITHIN.findall(value))
        if any(map(names_secret, named)) or without_secrets(value) != value:
            raise unmet("no secrets: they belong into the connection", f"{name[:80]!r}")


#: Settings of Spark that are fields.
_FIELD_OF = {"spark.master": "the connection of spark.submit", "spark.submit.deployMode": "the runner of spark.submit"}
#: Settings of Spark that can change a result: what each session has, whatever a cluster or a connection says.
FIXED = {
    f"spark.sql.{name}": value
    for value, names in {
        "true": "ansi.enabled decimalOperations.allowPrecisionLoss json.enablePartialResults retainGroupColumns "
        "jsonGenerator.ignoreNullFields lateralColumnAlias.enableImplicitResolution parquet.inferTimestampNTZ.enabled "
        "execution.replaceHashWithSortAgg",  # states sorted by key are merged in that order
        "false": "ansi.doubleQuotedIdentifiers ansi.enforceReservedKeywords caseSensitive function.eltOutputAsString "
        "function.concatBinaryAsString parquet.binaryAsString parser.escapedStringLiterals "
        "parser.quotedRegexColumnNames preserveCharVarcharTypeInfo timestampNanosTypes.enabled "
        "variant.allowDuplicateKeys "
        "variable.substitute",  # ``${...}`` in a spec would be a password, if it names one
        "CORRECTED": "parquet.datetimeRebaseModeInRead parquet.datetimeRebaseModeInWrite "
        "parquet.int96RebaseModeInRead legacy.timeParserPolicy",
        "UTC": "session.timeZone", "TIMESTAMP_LTZ": "timestampType", "EXCEPTION": "mapKeyDedupPolicy",
        "_corrupt_record": "columnNameOfCorruptRecord", "^[._]": "files.ignoredPathSegmentRegex",
        "TIMESTAMP_MICROS": "parquet.outputTimestampType",  # others take the default, INT96, as local time
    }.items()
    for name in names.split()
}  # fmt: skip


def is_fixed(name: str) -> bool:
    """Whether a setting is one of ``FIXED``, or brings back what an older Spark did."""
    return name in FIXED or name.startswith("spark.sql.legacy.")


class Sharing(Section):
    """What leases are like, and which Spark clusters share the stages of a DAG's runs."""

    connections: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,49}$")], ...] = Field(
        default=(), max_length=16, examples=[["spark_east", "spark_west"]]
    )
    """In a DAG: connections of further Spark clusters; each takes part in every stage, beside that of the steps."""
    lease_seconds: float = Field(default=8, ge=0.2, le=3600, examples=[30])
    """The normal lease: within it a cluster that joins has its share. One that is silent for four times as long has
    lost its tasks to the others; so has an attempt at a step, shared or not, to the next attempt."""

    @field_validator("connections")
    @classmethod
    def _each_once(cls, connections: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(connections)) < len(connections):
            raise unmet("each connection once", str(list(connections))[:120])
        return connections
