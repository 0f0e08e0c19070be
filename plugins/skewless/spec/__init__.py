"""What to compute: the job spec, its parts, and how it is read."""

from skewless.spec.aggregate_call import AggregateCall
from skewless.spec.clusters import Sharing, SparkSizing
from skewless.spec.input import Input, Map
from skewless.spec.reading import load_spec, parse_spec
from skewless.spec.result import Expectation, Output, Quality
from skewless.spec.routing import Routing
from skewless.spec.schedule import Schedule
from skewless.spec.spec import JobSpec

__all__ = [
    "AggregateCall", "Expectation", "Input", "JobSpec", "Map", "Output", "Quality", "Routing", "Schedule", "Sharing",
    "SparkSizing", "load_spec", "parse_spec",
]  # fmt: skip
