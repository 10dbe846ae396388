"""Fixtures of the tests of the pipeline: one Spark session per run, one `penstock up` per module, and its application."""

import json
import os

import pytest

from tests.services.spark import missing_spark, require_spark

if missing_spark() and os.environ.get("CI") != "true":
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def spark(request):
    require_spark()
    from pipeline.session import local_session

    path = os.pathsep.join(filter(None, [str(request.config.rootpath), os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as patch:  # Spark's workers inherit it; other tests' processes do not
        patch.setenv("PYTHONPATH", path)
        session = local_session("tests", "local[2,2]")
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def credential(penstock_up, tmp_path_factory):
    """The path of a file as `penstock app create -o json` writes it, of an application with all grants."""
    made = penstock_up.application("spark", send=["*"], pull=["*"])
    path = tmp_path_factory.mktemp("credential") / "spark.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(made._asdict()))
    return path


@pytest.fixture(scope="module")
def options(penstock_up, credential):
    """Options of a read: `options(topics="orders", …)`."""

    def make(**more):
        host, port = penstock_up.consumer
        return {"endpoint": f"{host}:{port}", "credential": str(credential), **more}

    return make


@pytest.fixture(scope="module")
def producer(penstock_up, credential):
    from penstock_client import Producer

    key = json.loads(credential.read_text())
    host, port = penstock_up.producer
    with Producer(f"{host}:{port}", key["app"], key["key_id"], key["secret"]) as made:
        yield made
