"""Jobs on Spark's Standalone cluster of two workers: the same program and commands as on one machine."""

import json
import os
import subprocess
import sys

import pytest
from penstock_client import Message

from tests.e2e.pipeline.struck_source import FORMAT
from tests.e2e.running import PENSTOCK
from tests.services.spark import require_spark

pytestmark = pytest.mark.slow  # six processes of Java

MESSAGES = 600
JOB_S_MAX = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    require_spark()
    from tests.services.spark_cluster import StandaloneCluster

    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def sent(penstock_up, producer):
    penstock_up.run("topic", "create", "origin", "target", "--queues", "2")
    made = [Message(topic="origin", key=str(number), body=b"%d" % number) for number in range(MESSAGES)]
    assert all(result.ok for result in producer.send_all(made))
    return MESSAGES


@pytest.fixture
def run(cluster, request, tmp_path):
    """Run a program to its end and return what it printed; the cluster's settings are Spark's defaults for it."""
    defaults = tmp_path / "spark"
    defaults.mkdir()
    root = str(request.config.rootpath)
    path = os.pathsep.join(filter(None, [root, cluster.environment.get("PYTHONPATH")]))
    settings = {**cluster.settings, "spark.executorEnv.PYTHONPATH": path}  # for the sink that strikes
    (defaults / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    environment = {**cluster.environment, "PYTHONPATH": path, "SPARK_CONF_DIR": str(defaults)}

    def finish(*line):
        done = subprocess.run(line, cwd=root, env=environment, capture_output=True, text=True, timeout=JOB_S_MAX)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        return done.stdout

    return finish


def test_a_streaming_copy_on_two_workers_doubles_nothing_when_an_executor_is_killed(
    run, cluster, sent, options, spark, penstock_up, credential, tmp_path
):
    marks = tmp_path / "marks"
    marks.mkdir()
    given = {
        "master": cluster.url, "settings": {"spark.sql.shuffle.partitions": "2"}, "format": FORMAT,
        "checkpoint": str(tmp_path / "checkpoint"),
        "read": options(topics="origin", start="earliest", maxMessagesPerTrigger=str(MESSAGES // 2)),
        "write": {
            "endpoint": "{}:{}".format(*penstock_up.producer), "credential": str(credential), "topic": "target",
            "strikes": json.dumps([["write", 1, "kill"]]), "marks": str(marks),
        },
    }  # fmt: skip
    run(sys.executable, "-m", "tests.e2e.pipeline.copy_program", json.dumps(given))
    assert (marks / "write-1").exists()
    rows = spark.read.format("penstock").options(**options(topics="target", columns="body")).load().collect()
    assert sorted(int(bytes(row.body)) for row in rows) == list(range(sent))


def test_an_archive_is_made_and_verified_on_the_cluster(run, cluster, sent, options, tmp_path):
    where, url = options(), str(tmp_path / "archive")
    more = ("--master", cluster.url, "-o", "json")
    proxies = ("--endpoint", where["endpoint"], "--credential", where["credential"])
    made = json.loads(run(*PENSTOCK, "pipeline", "archive", "run", url, "origin", "--range", "100", *proxies, *more))
    assert made["messages"] == sent
    assert json.loads(run(*PENSTOCK, "pipeline", "archive", "verify", url, *more))["messages"] == sent
    assert set(cluster.workers_by_application().values()) == {2}
