"""Progress of Spark's running stages, for jobs whose work is one query."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

TELL_S = 1.0
Say = Callable[[str], object]
"""Shows a sentence on the progress of a job."""


def silent(sentence: str) -> None:
    """Shows nothing."""


@contextmanager
def watched(spark: SparkSession, what: str, say: Say) -> Iterator[None]:
    """Tell the tasks of the running stages every second while the block runs."""
    ended = threading.Event()

    def tell() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(TELL_S):
            found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            done = sum(each.numCompletedTasks for each in found if each)
            say(f"{what}: {done:,} of {sum(each.numTasks for each in found if each):,} tasks")

    say(what)
    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
