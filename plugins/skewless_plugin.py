"""The only file of this folder that Airflow scans; everything else is an ordinary package.

An installed package, also an editable one, has an entry point for the plugin. Airflow would report an error if it met
the plugin here a second time, so this file offers it only where no entry point does.
"""

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="skewless"):
    from skewless_airflow.plugin import SkewlessPlugin

    __all__ = ["SkewlessPlugin"]
