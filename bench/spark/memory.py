"""Peak memory of a job of Spark, measured once per second."""

import threading

from bench.spark.processes import own_processes, pss_bytes

STEP_S = 1.0


class PeakMemory:
    """Largest sum of the PSS of the job's processes while a block runs."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(STEP_S):
            self.peak_bytes = max(self.peak_bytes, pss_bytes(own_processes()))
