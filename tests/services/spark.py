"""PySpark with the Java that it needs: the extra `spark`. One session serves all tests of a run."""

import shutil
from importlib.util import find_spec

from tests.services import require

MODULES = ("pyspark", "pyarrow")


def missing_spark() -> str:
    """What is missing for a session of Spark; empty: nothing."""
    missing = [name for name in MODULES if find_spec(name) is None]
    missing += [] if shutil.which("java") else ["java"]
    return f"Spark needs {', '.join(missing)}: pip install penstock[spark]" if missing else ""


def require_spark() -> None:
    """Skip or fail the running test unless Spark can be started."""
    why = missing_spark()
    require(not why, why)
