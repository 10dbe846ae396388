"""History of the consumers of an ordered group in a run with faults, and the rules that must hold for it.

A sequence is a key (order by key) or a queue (order by queue); its messages are known in full from the log. The rules, after
docs/design/0010-retries.md:

    overtaken   handed out although an earlier one of its sequence was neither done nor dead by then
    repeated    handed out again although its DONE was answered OK and no crash of the engine can have undone that
    past_stop   handed out past a message of its queue that came back after its last attempt, under the policy "stop"
    lost        neither dead in the end nor called done by anybody whose acknowledgement may have counted
    dead_early  a dead letter of "park" or "stop" that nobody rejected

Moments are seconds of the machine's monotonic clock, the same in all processes, taken by the consumers before they ask and after they are
answered; so what is reported was the engine's doing, and not the network's. An acknowledgement that was never answered may have counted.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

Place = tuple[int, int]  # queue, offset

FORGETS_S = 0.2 + 0.5
"""A crash may undo what was acknowledged within an interval of progress, and what the machine's noise adds to it."""

CLOCKS_S = 0.05
"""By how much the moment of a dead letter, read from a wall clock, may be off."""


class Given(NamedTuple):
    """One delivery; `pull` tells answers apart."""

    place: Place
    attempt: int
    asked_s: float
    got_s: float
    pull: str


class Verdict(NamedTuple):
    """What a consumer said of a delivery. `code`: of the answer, None when it never came, and `answered_s` is then `asked_s`."""

    place: Place
    verdict: str
    asked_s: float
    answered_s: float
    code: int | None

    @property
    def may_count(self) -> bool:
        return self.code in (0, None)


@dataclass
class History:
    """Of one group. `dead`: since when (by the engine's clock, as monotonic seconds) a message is a dead letter."""

    sequences: Mapping[object, list[Place]]
    given: list[Given] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    dead: dict[Place, float] = field(default_factory=dict)
    rejected_dead: set[Place] = field(default_factory=set)
    crashes_s: list[float] = field(default_factory=list)

    def forgot(self, done_s: float, until_s: float) -> bool:
        """Whether a crash before `until_s` can have undone what was answered at `done_s`."""
        return any(done_s > crash_s - FORGETS_S and crash_s < until_s for crash_s in self.crashes_s)


def check(history: History, *, together: bool = False, stops_after: int = 0, parks: bool = False) -> dict[str, list]:
    """The rules that do not hold, with up to five proofs each.

    Args:
        together: whether one answer may bring several messages of a sequence (order by queue).
        stops_after: the group's last attempt, when its policy is "stop".
        parks: whether only a rejected message may be dead.
    """
    by_place: dict[Place, list[Given]] = defaultdict(list)
    done: dict[Place, list[Verdict]] = defaultdict(list)
    for given in sorted(history.given, key=lambda each: each.got_s):
        by_place[given.place].append(given)
    for verdict in history.verdicts:
        if verdict.verdict == "DONE" and verdict.may_count:
            done[verdict.place].append(verdict)
    found: dict[str, list] = {
        "overtaken": list(_overtaken(history, by_place, done, together)),
        "repeated": list(_repeated(history, by_place, done)),
        "past_stop": list(_past_stop(history, by_place, done, stops_after)) if stops_after else [],
        "lost": [
            place
            for places in history.sequences.values()
            for place in places
            if place not in history.dead and place not in done
        ],
        "dead_early": [place for place in history.dead if parks and place not in history.rejected_dead],
    }
    return {rule: proofs[:5] for rule, proofs in found.items() if proofs}


def _overtaken(history: History, by_place: Mapping, done: Mapping, together: bool) -> Iterable[tuple[Place, Place]]:
    for places in history.sequences.values():
        for number, place in enumerate(places):
            for given in by_place.get(place, ()):
                for earlier in places[:number]:
                    if together and any(each.pull == given.pull for each in by_place.get(earlier, ())):
                        continue
                    if not _is_over(history, earlier, given, by_place, done):
                        yield earlier, place


def _is_over(history: History, place: Place, at: Given, by_place: Mapping, done: Mapping) -> bool:
    """Whether the message can have been over when `at` was handed out: nobody was given it since somebody called it done."""
    if history.dead.get(place, float("inf")) <= at.got_s + CLOCKS_S:
        return True
    said = [each.asked_s for each in done.get(place, ()) if each.asked_s < at.got_s]
    return bool(said) and not any(
        each.asked_s > max(said) and each.got_s < at.asked_s for each in by_place.get(place, ())
    )


def _repeated(history: History, by_place: Mapping, done: Mapping) -> Iterable[Given]:
    for place, verdicts in done.items():
        for verdict in verdicts:
            for given in by_place.get(place, ()):
                late = verdict.code == 0 and given.asked_s > verdict.answered_s
                if late and not history.forgot(verdict.answered_s, given.got_s):
                    yield given


def _past_stop(history: History, by_place: Mapping, done: Mapping, last: int) -> Iterable[tuple[Place, Place]]:
    ordered = sorted(history.given, key=lambda each: each.got_s)
    for stuck in (each for each in ordered if each.attempt > last):
        said = [each.asked_s for each in done.get(stuck.place, ()) if each.asked_s > stuck.got_s]
        until_s = min([*said, history.dead.get(stuck.place, float("inf"))], default=float("inf"))
        pulls = {each.pull for each in by_place[stuck.place]}
        for other in ordered:
            meanwhile = stuck.got_s < other.asked_s and other.got_s < until_s
            # Of several that came back after their last attempt the first one goes on being tried, neighbours with it.
            is_stuck_too = other.attempt > last and (other.place < stuck.place or other.pull in pulls)
            passed = other.place[0] == stuck.place[0] and other.place != stuck.place and not is_stuck_too
            if passed and meanwhile and not history.forgot(stuck.got_s, other.got_s):
                yield stuck.place, other.place


def story(history: History, place: Place) -> list[str]:
    """What happened to one message, for a failure's text."""
    events: list[tuple[float, str]] = [
        (each.got_s, f"given as {each}") for each in history.given if each.place == place
    ]
    events += [(each.asked_s, f"said {each}") for each in history.verdicts if each.place == place]
    events += [(at_s, "the engine is killed") for at_s in history.crashes_s]
    if place in history.dead:
        events.append((history.dead[place], "a dead letter"))
    return [f"{at_s:.3f} {text}" for at_s, text in sorted(events)]


def read_events(files: Iterable[Path], group: str) -> tuple[list[Given], list[Verdict]]:
    """What consumers wrote (tests/fault/order_consumer.py), whole lines only: the last one of a killed process may be cut."""
    given, verdicts = [], []
    for path in files:
        asked: dict[str, dict] = {}
        for line in path.read_bytes().split(b"\n")[:-1]:
            event = json.loads(line)
            if event["group"] != group:
                continue
            if event["what"] == "ask":
                asked[event["pull"]] = event
                continue
            question = asked.pop(event["pull"])
            verdicts += _verdicts(question, event["s"], event["codes"])
            given += [
                Given((queue, offset), attempt, question["s"], event["s"], event["pull"])
                for queue, offset, attempt in event["given"]
            ]
        for question in asked.values():
            verdicts += _verdicts(question, question["s"], [None] * len(question["acks"]))
    return given, verdicts


def _verdicts(question: dict, answered_s: float, codes: list[int | None]) -> list[Verdict]:
    return [
        Verdict((queue, offset), verdict, question["s"], answered_s, code)
        for (queue, offset, verdict), code in zip(question["acks"], codes, strict=True)
    ]
