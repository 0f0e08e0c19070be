"""The engines, a module each: where the states of a stage are made, and what it reports. ``stage`` runs one."""

from skewless_spark.engines.bypass import Bypass
from skewless_spark.engines.combine import Combine
from skewless_spark.engines.engine import Engine
from skewless_spark.engines.staged import Staged

ENGINES: dict[str, Engine] = {"combine": Combine(), "bypass": Bypass(), "staged": Staged()}
