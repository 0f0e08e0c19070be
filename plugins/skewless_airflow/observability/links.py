"""Links on tasks: to the pages of their run, and to Spark's UI.

A link is pushed when a task begins, so that it is there while the task runs and after it failed. Addresses within
Airflow are paths: the browser that shows them knows the host.
"""

import os
from typing import Any
from urllib.parse import quote, urlsplit

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink

#: Where a finished application is shown, with ``{app_id}`` for its id: ``http://host:18080/history/{app_id}/jobs/``.
HISTORY = "SKEWLESS_SPARK_HISTORY"


class SkewReportLink(BaseOperatorLink):
    """To the tab of the run in Airflow: loads, decisions, ledger."""

    name = "Skew report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002  # Airflow's signature
        """The address."""
        return skew_page(ti_key.dag_id, ti_key.run_id)


class DecisionLink(BaseOperatorLink):
    """To the page of the decision that a task made."""

    name = "Decision"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002  # Airflow's signature
        """The address."""
        return f"{_run(ti_key.dag_id, ti_key.run_id, '/skewless')}/tasks/{_quoted(ti_key.task_id)}/decision"


class QualityReportLink(BaseOperatorLink):
    """To the run's data quality report."""

    name = "Quality report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002  # Airflow's signature
        """The address."""
        return quality_page(ti_key.dag_id, ti_key.run_id)


class SparkUiLink(BaseOperatorLink):
    """To the application: its page at the service that runs it, else in Spark's history server, else its own UI.

    The operator has that page, the id and the address of its application as ``application_page``,
    ``spark_application`` and ``spark_address``.
    """

    name = "Spark UI"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002  # Airflow's signature
        """The address, empty where there is none."""
        if operator.application_page or not operator.spark_application:
            return operator.application_page
        template = os.environ.get(HISTORY) or conf.get("skewless", "spark_history", fallback="")
        return template.replace("{app_id}", _quoted(operator.spark_application)) or operator.spark_address


def skew_page(dag_id: str, run_id: str, group: str = "") -> str:
    """The path of a run's tab in Airflow; of one aggregation of several in a DAG, of its page."""
    if group:
        return f"{_run(dag_id, run_id, '/skewless')}/skew?group={_quoted(group)}"
    return f"{_run(dag_id, run_id)}/plugin/skew"


def quality_page(dag_id: str, run_id: str, group: str = "") -> str:
    """The path of a run's data quality report."""
    return f"{_run(dag_id, run_id, '/skewless')}/quality{f'?group={_quoted(group)}' if group else ''}"


def address_of(path: str) -> str:
    """The whole address of a path of this Airflow, for logs and messages; the path where its host is not configured."""
    base = urlsplit(conf.get("api", "base_url", fallback="") or "")
    return f"{base.scheme}://{base.netloc}{path}" if base.netloc else path


def push_links(context: Any) -> None:
    """Push the links of a task as XComs, from which Airflow's pages read them."""
    ti, task = context["ti"], context["task"]
    for link in task.operator_extra_links:
        ti.xcom_push(key=link.xcom_key, value=link.get_link(task, ti_key=ti))


def _run(dag_id: str, run_id: str, app: str = "") -> str:
    """The path of a run in Airflow, or in an app of it; Airflow itself may be served below a path."""
    base = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    return f"{base}{app}/dags/{_quoted(dag_id)}/runs/{_quoted(run_id)}"


def _quoted(ident: str) -> str:
    return quote(ident, safe="")
