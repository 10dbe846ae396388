"""A Spark session: on this machine with the settings that were measured to be quick there, or on a cluster."""

import os
import pkgutil
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from pipeline.data_source import PenstockSource

FOUND_BY_SPARK = "pyspark_penstock"
SETTINGS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss1m -XX:-UsePerfData",
    "spark.sql.adaptive.enabled": "false",
}
"""For a master on this machine. On a cluster, its own defaults hold, and its executors must reach the driver."""

JOB_SETTINGS = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xss1m -XX:-UsePerfData"}
"""For jobs of minutes: the JVM's second compiler makes generated code faster, and takes some seconds to do so."""


def local_session(name: str, master: str = "local[2]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session, or get the present one. Spark's Python workers run on the interpreter of this process, or on that
    of PYSPARK_PYTHON.

    The format is registered where Spark does not find it: it lists modules, and those of an editable installation are
    in no list.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    machine = LOCAL_SETTINGS if master.startswith("local") else {}
    for key, value in {**SETTINGS, **machine, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if all(each.name != FOUND_BY_SPARK for each in pkgutil.iter_modules()):
        session.dataSource.register(PenstockSource)
    return session
