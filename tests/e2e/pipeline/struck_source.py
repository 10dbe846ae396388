"""The sink of Spark, which dies or waits at chosen steps of chosen batches, once each. For tests.

Options beside those of the sink: strikes, JSON with [step, batch, action] each, and marks, a directory. A step is `write`
(the rows of a task are sent, and Spark does not know it) or `commit`. Action `die` ends the Python worker, `kill`
its executor; `wait` leaves time to kill the driver, once the file `marks/STEP-BATCH` is there.
"""

import json
import os
import signal
import threading
from pathlib import Path

from pyspark import TaskContext

from pipeline.data_source import PenstockSource
from pipeline.sink.writer import BATCH_PROPERTY, PenstockStreamWriter

FORMAT = "penstock-struck"
WAIT_S = 120.0


class StruckSource(PenstockSource):
    @classmethod
    def name(cls):
        return FORMAT

    def streamWriter(self, schema, overwrite):
        strikes, marks = json.loads(self.options.pop("strikes")), self.options.pop("marks")
        return StruckWriter(self._write_options(schema, overwrite), strikes, marks)


class StruckWriter(PenstockStreamWriter):
    def __init__(self, options, strikes, marks) -> None:
        super().__init__(options)
        self._strikes, self._marks = strikes, marks

    def write(self, iterator):
        written = super().write(iterator)
        self._reached("write", int(TaskContext.get().getLocalProperty(BATCH_PROPERTY)))
        return written

    def commit(self, messages, batchId):
        self._reached("commit", batchId)
        super().commit(messages, batchId)

    def _reached(self, step, batch):
        for at, number, action in self._strikes:
            mark = Path(self._marks) / f"{step}-{batch}"
            if (at, number) == (step, batch) and not mark.exists():
                mark.touch()
                if action == "die":
                    os._exit(9)
                if action == "kill":
                    os.kill(executor_pid(), signal.SIGKILL)
                threading.Event().wait(WAIT_S)


def executor_pid():
    """The process of Java above this one; in local mode it would be the driver's."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return pid
