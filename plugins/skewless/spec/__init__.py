"""What to compute: the job spec, its parts, and how it is read."""

from skewless.spec.calls import AggregateCall, Map
from skewless.spec.clusters import Sharing, SparkSettings
from skewless.spec.input import Input
from skewless.spec.reading import load_spec, parse_spec
from skewless.spec.result import Expectation, Output, Quality, Window
from skewless.spec.routing import Policy, Routing
from skewless.spec.schedule import AirflowSettings, Schedule
from skewless.spec.spec import JobSpec

__all__ = [
    "AggregateCall", "AirflowSettings", "Expectation", "Input", "JobSpec", "Map", "Output",
    "Policy", "Quality", "Routing", "Schedule", "Sharing", "SparkSettings", "Window", "load_spec", "parse_spec",
]  # fmt: skip
