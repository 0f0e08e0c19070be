"""Cron expressions, judged as Airflow judges them, by the library that it uses."""

from __future__ import annotations

import datetime as dt

from croniter import CroniterBadCronError, CroniterBadDateError, croniter

#: A name that Airflow takes and croniter does not.
_NAMES = {"@quarterly": "0 0 1 */3 *"}
#: Any day serves: whether there is a next moment does not depend on it.
_BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def cron_fault(expression: str) -> str:
    """What is wrong with a cron expression; "" if Airflow takes it and such a moment ever comes.

    >>> cron_fault("0 0 30 2 *")
    'there is no such moment'
    """
    try:
        moments = croniter(_NAMES.get(expression, expression), _BEGIN)
        moments.get_next()
        moments.get_prev()  # Airflow looks from one to the other
    except CroniterBadDateError:
        return "there is no such moment"
    except CroniterBadCronError as err:
        return str(err)
    return ""
