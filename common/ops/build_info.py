"""The version that a process runs, as a label of a metric whose value is 1.

name | type, unit | what to do about it
penstock_build_info{version} | 1 | differs between processes for long: an upgrade was not finished
"""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


def installed_version() -> str:
    """The version of the installed package; empty where it runs without being installed."""
    try:
        return version("penstock")
    except PackageNotFoundError:
        return ""


class BuildInfo(Collector):
    """A collector of the version as of the start of the process: an upgrade on the disk does not change what runs."""

    def __init__(self) -> None:
        self._version = installed_version()

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("penstock_build_info", "version that this process runs", labels=["version"])
        family.add_metric([self._version], 1)
        yield family
