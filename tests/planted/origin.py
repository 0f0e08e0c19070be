"""A pytest plugin: what is tested is the copy.

The package is installed editable, so that an import could find the checkout, where no fault is planted.
"""

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = ("skewless", "skewless_leases", "skewless_airflow", "skewless_spark")


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish() -> Iterator[None]:
    """End with an internal error if any module of ours, or where one would come from, is outside the copy."""
    copy = Path(os.environ["SKEWLESS_PLANTED"]).resolve()
    loaded = {
        name: getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if name.split(".")[0] in {*PACKAGES, "tests"}
    }
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        loaded[name] = spec.origin if spec else None
    outside = {name: file for name, file in loaded.items() if file and not Path(file).resolve().is_relative_to(copy)}
    if outside:
        raise RuntimeError(f"these modules are not those of the copy in {copy}: {outside}")
    yield
