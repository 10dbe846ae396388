"""A rich load on a broker group with replicas: started, watched and judged by a test, done by a process of its own.

load = ReplicatedLoad(penstock, tmp_path / "load").start()
load.wait_more(1000)
since_s = time.monotonic()
…
print(load.gap_s(since_s, time.monotonic()), load.refused)
load.finish().assert_clean()
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from common.contract import Code, Message, Operation
from tests.e2e.running import Application
from tests.fault.replicated.history import SentHistory
from tests.fault.replicated.load_process import SETTINGS
from tests.fault.replicated.plan import GROUPS, TOPICS, define
from tests.fault.replicated.records import SentRecord
from tests.fault.replicated.verdict import ReplicatedVerdict, judge, wait_drained
from tests.fault.stock_clients import Puller, Sender
from tests.waiting import until

ROOT = Path(__file__).parents[3]
RATE = 1000.0


def wait_known(penstock: Any, who: Application) -> None:
    """Until both proxies know the application, the topics and the groups; nothing is stored by that."""

    def send() -> bool:
        with Sender(penstock.producer, who) as sender:
            probes = [Message(topic=topic, id="probe", operation=Operation.CANCEL) for topic in TOPICS]
            return {result.code for result in sender.send(*probes)} == {Code.NOT_CANCELLABLE}

    def pull() -> bool:
        with Puller(penstock.consumer, who) as puller:
            return {puller.pull(group, topics=[*GROUPS[group]], max_messages=0).code for group in GROUPS} == {Code.OK}

    until(send, "the producer proxy knows all topics", 20)
    until(pull, "the consumer proxy knows all groups", 20)


class ReplicatedLoad:
    """Senders and groups against one producer and one consumer proxy, which keep their addresses.

    Args:
        penstock: has `producer`, `consumer`, `run(…)` and `application(…)` as RunningPenstock has.
        folder: for its files; new.
        rate: messages per second in all.
        wrapper: what its process is an argument of, such as `ip netns exec`.
        synced: streams whose messages are acknowledged once they are on the disks of all members.
    Attributes:
        facts: its process's own figures, after `finish`.
    """

    def __init__(self, penstock: Any, folder: Path, rate: float = RATE, wrapper: Sequence[str] = (),
                 synced: Sequence[int] = ()) -> None:  # fmt: skip
        self.penstock, self.folder, self._synced = penstock, folder, [*synced]
        self._rate, self._wrapper = rate, [*wrapper]
        self._process: subprocess.Popen[str] | None = None
        self.history = SentHistory(folder / "sent")
        self.facts: dict[str, Any] = {}
        self._began_s = 0.0

    def start(self) -> "ReplicatedLoad":
        """Define everything and start; return when messages of every stream are acknowledged."""
        self.folder.mkdir()
        self.who = define(self.penstock)
        wait_known(self.penstock, self.who)
        settings = {
            "application": self.who,
            "producer": self.penstock.producer,
            "consumer": self.penstock.consumer,
            "rate": self._rate,
            "synced": self._synced,
        }
        path = self.folder / SETTINGS
        path.touch(0o600)
        path.write_text(json.dumps(settings))
        command = [sys.executable, "-m", "tests.fault.replicated.load_process", str(self.folder)]
        self._process = subprocess.Popen(
            [*self._wrapper, *command], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._began_s = time.monotonic()
        until(self._every_stream_began, "messages of every stream are acknowledged", 20)
        return self

    def _every_stream_began(self) -> bool:
        self.assert_alive()
        return all(min(each.codes, default=999) < 100 for each in self.history.read().streams)

    def assert_alive(self) -> None:
        assert self._process.poll() is None, f"the load ended with {self._process.returncode}"

    @property
    def acknowledged(self) -> int:
        return len(self.history.read().acknowledged_s)

    @property
    def refused(self) -> list[SentRecord]:
        """Messages that were not acknowledged."""
        return self.history.read().refused

    def wait_more(self, count: int, deadline_s: float = 30.0) -> None:
        """Until `count` further messages are acknowledged."""
        goal = self.acknowledged + count
        until(lambda: self.acknowledged >= goal, f"{count} more acknowledged messages", deadline_s)
        self.assert_alive()

    def gap_s(self, since_s: float, until_s: float) -> float:
        """Longest time without an acknowledged message between two moments of the monotonic clock."""
        times = sorted(each for each in self.history.read().acknowledged_s if since_s <= each <= until_s)
        return max(after - before for before, after in pairwise([since_s, *times, until_s]))

    def drain(self) -> None:
        """Stop the senders, and wait until the groups have acknowledged everything."""
        self.facts = self._tell("drain")
        wait_drained(self.penstock, GROUPS)

    def finish(self) -> ReplicatedVerdict:
        """Drain, stop, and judge."""
        self.drain()
        self.facts = self._tell("stop")
        self._process.wait(20)
        seconds = time.monotonic() - self._began_s
        print(f"load: {self.facts['cpu_s'] / seconds:.2f} of a core, {self.facts['rss_kib'] >> 10} MiB; {self.facts}")
        assert self.facts["errors"] == []
        return judge(self.penstock, self.who, self.history.read(), self.folder, self.facts["wrong"])

    def _tell(self, word: str) -> dict[str, Any]:
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the load has ended"
        return json.loads(line)

    def end(self) -> None:
        """End its process, whatever the test did."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
