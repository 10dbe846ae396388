"""Spark's own Standalone cluster on loopback: a master and workers by the scripts of the installed PySpark."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pyspark

from bench.peers.processes import free_ports
from tests.waiting import until

CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
START_S_MAX = 60.0
QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


class StandaloneCluster:
    """Start in a `with`. Each worker has one core; executors' folders are below `folder`/worker-N.

    Attributes:
        url: the master's, for `--master`.
        environment: variables that a driver needs to be reached on loopback.
        settings: of a session on the cluster, for small executors.
    """

    def __init__(self, folder: Path, workers: int = 2, executor_mib: int = 512) -> None:
        self._folder, self._workers, self._mib = folder, workers, executor_mib
        (port,) = free_ports(1)
        self._port, self.url = port, f"spark://127.0.0.1:{port}"
        self.environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        self.settings = {
            "spark.executor.memory": f"{executor_mib}m", "spark.executor.cores": "1", "spark.driver.memory": "512m",
            "spark.executor.extraJavaOptions": QUICK, "spark.driver.extraJavaOptions": QUICK, "spark.ui.enabled": "false",
        }  # fmt: skip
        self._processes: list[subprocess.Popen] = []

    def __enter__(self) -> "StandaloneCluster":
        try:
            self._start("master", "Master", "--port", str(self._port), until_it_says="I have been elected leader")
            for number in range(1, self._workers + 1):
                own = self._folder / f"worker-{number}"
                own.mkdir()
                more = ("--cores", "1", "--memory", f"{self._mib + 64}m", "--work-dir", str(own), self.url)
                self._start(own.name, "Worker", *more, until_it_says="Successfully registered with master")
        except BaseException:
            self.__exit__()
            raise
        return self

    def workers_by_application(self) -> Counter[str]:
        """How many workers have run executors of each application so far."""
        return Counter(each.name for each in self._folder.glob("worker-*/app-*"))

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()  # a worker ends its executors
        for process in self._processes:
            process.wait(START_S_MAX)

    def _start(self, name: str, role: str, *more: str, until_it_says: str) -> None:
        log = self._folder / f"{name}.log"
        line = [
            str(CLASS),
            f"org.apache.spark.deploy.{role.lower()}.{role}",
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
        ]
        own = {"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": QUICK}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*line, *more], env={**self.environment, **own}, stdout=out, stderr=subprocess.STDOUT
            )
        self._processes.append(process)
        until(
            lambda: until_it_says in log.read_text(errors="replace") or process.poll() is not None,
            f"{name} of Spark's cluster",
            START_S_MAX,
        )
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
