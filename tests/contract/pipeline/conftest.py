"""The pipeline's modules import PySpark and Arrow: without the extra `spark` their tests are left out, except in CI."""

import os

from tests.services.spark import missing_spark

if missing_spark() and os.environ.get("CI") != "true":
    collect_ignore_glob = ["test_*.py"]
