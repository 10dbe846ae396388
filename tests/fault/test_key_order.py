"""Order by key and by queue while consumers, the proxy and the engine are killed: histories of real processes, checked
against the rules.

Short form: one seed. `-m slow`: seeds 1 to PENSTOCK_ORDER_SEEDS (5), with more kills.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from common.contract import Code, Durability, Message, Position
from tests.e2e.running import RunningPenstock
from tests.fault.key_history import Given, History, check, read_events, story
from tests.fault.stock_clients import Puller, Sender, retry_until_served
from tests.waiting import until

ROOT = Path(__file__).parents[2]
QUEUES, KEYS = 4, 12
ATTEMPTS_MAX = 3
QUIET_S = 1.5  # a lease and a tick
SEEDS = int(os.environ.get("PENSTOCK_ORDER_SEEDS", "5"))
GROUPS = {
    "none": {"order": "none"},
    "key-skip": {"order": "key", "on-failure": "skip"},
    "key-park": {"order": "key", "on-failure": "park"},
    "key-stop": {"order": "key", "on-failure": "stop"},
    "queue-skip": {"order": "queue", "on-failure": "skip"},
    "queue-stop": {"order": "queue", "on-failure": "stop"},
}


class Run:
    """A Penstock, groups of every order, and two consumer processes that serve all of them until the end of the test."""

    def __init__(self, folder, seed: int) -> None:
        self.seed, self.chance, self._folder = seed, random.Random(seed), folder
        self.penstock = RunningPenstock(folder / "data").start()
        self.shop = self.penstock.application("shop", send=["*"], pull=["*"], dead_letters=["*"])
        self.penstock.run("topic", "create", "orders", "--queues", str(QUEUES), "--durability", "fsync")
        for group, options in GROUPS.items():
            flags = [part for name, value in options.items() for part in (f"--{name}", value)]
            self.penstock.run(
                "group", "create", group, *flags, "--invisible-ms", "1000", "--retry", "50",
                "--attempts-max", str(ATTEMPTS_MAX),
            )  # fmt: skip
        self.sent: list[str] = []
        self.crashes_s: list[float] = []
        self._files, self._consumers = [], []

    def send(self, count: int) -> None:
        """Messages of few keys, of which some are rejected, some fail at first; sent again until they are taken."""
        kinds = self.chance.choices("dfr", [90, 6, 4], k=count)
        messages = [
            Message(topic="orders", body=kind.encode(), key=f"k{self.chance.randrange(KEYS)}", id=f"m{at}")
            for at, kind in enumerate(kinds, len(self.sent))
        ]

        def taken() -> bool:
            with Sender(self.penstock.producer, self.shop) as sender:
                results = sender.send(*messages, durability=Durability.FSYNC)
            return {result.code for result in results} <= {Code.OK, Code.DUPLICATE}

        retry_until_served(taken, f"{count} messages are sent")
        self.sent += [message.id for message in messages]

    def start_consumer(self) -> None:
        path = self._folder / f"history-{len(self._files)}"
        path.touch()
        options = {
            "ready": str(self.penstock.ready_file), "who": self.shop, "topic": "orders", "groups": list(GROUPS),
            "history": str(path), "seed": f"{self.seed}.{len(self._files)}",
        }  # fmt: skip
        line = [sys.executable, "-P", "-m", "tests.fault.order_consumer", json.dumps(options)]
        self._files.append(path)
        self._consumers.append(subprocess.Popen(line, env={**os.environ, "PYTHONPATH": str(ROOT)}))

    def kill_consumer(self) -> None:
        victim = self._consumers.pop(self.chance.randrange(len(self._consumers)))
        victim.kill()
        victim.wait()
        self.start_consumer()

    def kill(self, name: str) -> None:
        if name == "consumer":
            self.kill_consumer()
            return
        began_s, pid = time.monotonic(), self.penstock.kill(name)
        if name == "engine":
            self.crashes_s.append(began_s)
        self.penstock.wait_replaced(name, pid)

    def wait_more(self, group: str, count: int) -> None:
        """Until the group was given `count` more messages."""
        goal = min(len(read_events(self._files, group)[0]) + count, len(self.sent))
        until(lambda: len(read_events(self._files, group)[0]) >= goal, f"{group} goes on", 20)

    def history(self, group: str) -> History:
        with Puller(self.penstock.consumer, self.shop) as puller:
            log = puller.read_all("key-skip", "orders", QUEUES)
            letters = dead_letters(puller, group)
        sequences = defaultdict(list)
        for each in log:
            name = each.message.key if GROUPS[group]["order"] == "key" else each.queue
            sequences[name].append((each.queue, each.offset))
        wall_s = time.time() - time.monotonic()
        given, verdicts = read_events(self._files, group)
        history = History(sequences, given, verdicts, crashes_s=self.crashes_s)
        for letter in sorted(letters, key=lambda each: -each.offset):
            named = letter.message.properties
            place = int(named["dead_letter_queue"]), int(named["dead_letter_offset"])
            history.dead[place] = letter.stored_at_ms / 1000 - wall_s
            if named["dead_letter_cause"] == "rejected":
                history.rejected_dead.add(place)
        return history

    def is_over(self, group: str) -> bool:
        """Nothing has come for longer than a lease, and what came last was done or is dead."""
        given, verdicts = read_events(self._files, group)
        ended = {each.place for each in verdicts if each.verdict != "RETRY" and each.may_count}
        if len(ended) < len(self.sent) * 0.9 or time.monotonic() < max(each.got_s for each in given) + QUIET_S:
            return False
        return len(ended | self.history(group).dead.keys()) >= len(self.sent)

    def end(self) -> None:
        for consumer in self._consumers:
            consumer.terminate()
        for consumer in self._consumers:
            consumer.wait(20)
        self._consumers = []

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.kill()
            consumer.wait()
        self.penstock.end()


def dead_letters(puller: Puller, group: str) -> list:
    topic = f"_dlq.{group}"
    (report,) = puller.pull(group, positions=[Position(topic, 0)]).positions
    return puller.read_all(group, topic, 1) if report.code == Code.OK else []


@pytest.fixture
def run(tmp_path, request):
    made = Run(tmp_path, request.param)
    yield made
    made.close()


def hold_against_the_rules(run: Run) -> None:
    for group, options in GROUPS.items():
        if group == "none":
            continue
        by_key, policy = options["order"] == "key", options["on-failure"]
        stops_after = ATTEMPTS_MAX if by_key and policy == "stop" else 0
        history = run.history(group)
        broken = check(history, together=not by_key, stops_after=stops_after, parks=policy != "skip")
        again = len(history.given) - len({each.place for each in history.given})
        print(
            f"seed {run.seed}, {group}: {len(history.given)} deliveries, {again} again, {len(history.dead)} dead letters"
        )
        assert broken == {}, told(history, broken, f"seed {run.seed}, {group}")
        assert len({each.place for each in history.given}) > len(run.sent) * 0.9
        assert again > 0 and history.dead, "the run was too quiet"


def told(history: History, broken: dict, where: str) -> str:
    """The first proof of each broken rule, with the stories of its messages."""
    lines = [where]
    for rule, (proof, *_) in broken.items():
        places = [proof.place] if isinstance(proof, Given) else proof if isinstance(proof[0], tuple) else [proof]
        for place in places:
            lines += [f"{rule} {proof}: {place}", *story(history, place)]
    return "\n".join(lines)


def a_life(run: Run, victims: list[str], messages: int) -> None:
    run.send(messages)
    run.start_consumer()
    run.start_consumer()
    for victim in victims:
        run.wait_more("key-stop", messages // 8)
        run.kill(victim)
        run.send(messages // 8)
    for group in GROUPS:
        until(lambda group=group: run.is_over(group), f"{group} has done everything", 60)
    run.end()


@pytest.mark.parametrize("run", [1], indirect=True)
def test_the_order_holds_while_a_consumer_the_proxy_and_the_engine_are_killed(run):
    a_life(run, ["consumer", "consumer_proxy", "engine"], 240)
    hold_against_the_rules(run)
    unordered = run.history("none")
    unordered.sequences = run.history("key-skip").sequences
    assert "overtaken" in check(unordered), "without an order the same run keeps the rules: they cannot fail"


@pytest.mark.slow
@pytest.mark.parametrize("run", range(1, SEEDS + 1), indirect=True)
def test_the_order_holds_over_many_kills(run):
    victims = ["consumer", "consumer_proxy", "engine", "engine"] * 3
    run.chance.shuffle(victims)
    a_life(run, victims, 800)
    hold_against_the_rules(run)
