"""Flipped bits and deleted files on one of two logs: repaired from the other one, never served, equal in the end.

PENSTOCK_GROUP_FLIPS=1000 for more of them, PENSTOCK_SEED for the same ones again. `test_repair_from_a_peer.py` does a
few of them with real processes; here the broker's parts are driven without sockets, so that there can be many.
"""

import logging
import os
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from engine.env.real import RealEnv
from engine.errors import BehindCheckpointError, CorruptionError, LogError
from engine.log import open_log
from engine.log.upkeep.scrub import IDLE_S, Scrub
from tests.fault.flipped_log import CONFIG, KINDS, KnownLog, read_all

FLIPS = int(os.environ.get("PENSTOCK_GROUP_FLIPS", "60"))
SEED = os.environ.get("PENSTOCK_SEED") or str(time.time_ns())
LIMIT = 1 << 62
DELETED = ("segment", "index", "view", "checked ids")


class TwoLogs:
    """The known log, and a whole copy of it that is asked for bytes."""

    def __init__(self, folder: Path, chance: Random) -> None:
        self._chance = chance
        self.known = KnownLog(folder / "damaged", chance)
        self.known.restore()
        shutil.copytree(folder / "damaged", folder / "whole")
        self.peer = open_log(RealEnv(), str(folder / "whole"), CONFIG)
        self.segments = self._segments(folder / "whole")

    @staticmethod
    def _segments(path: Path) -> dict[str, bytes]:
        """Segment files with batches, by name."""
        found = {file.name: file.read_bytes() for file in sorted((path / "log").glob("*.seg"))}
        return {name: data for name, data in found.items() if any(data[64:])}

    def delete(self, kind: str) -> str:
        """Delete a file, or the folder of the view."""
        log = self.known.path / "log"
        if kind == "view":
            shutil.rmtree(self.known.path / "state")
            return "state"
        suffix = {"segment": ".seg", "index": ".idx", "checked ids": ".dup"}[kind]
        files = sorted(log.glob(f"*{suffix}"))
        if not files:
            return "none"
        file = self._chance.choice([each for each in files if suffix != ".seg" or each.name in self.segments])
        file.unlink()
        return file.name

    def mend(self) -> str:
        """Open the log as a broker does, repair it from the other one, and copy what its end lacks. Returns how."""
        how = "in place"
        for step in ("", "without its view", "anew"):
            how = step or how
            if step == "without its view":
                shutil.rmtree(self.known.path / "state", ignore_errors=True)
            elif step:
                shutil.rmtree(self.known.path / "log")
                shutil.copytree(Path(self.known.path).parent / "whole" / "log", self.known.path / "log")
            try:
                log = open_log(RealEnv(), str(self.known.path), CONFIG)
                break
            except (BehindCheckpointError, CorruptionError, LogError) as error:
                assert len(str(error)) > 20
        try:
            self._assert_right(log)
            is_stale = self._repair(log)
        finally:
            log.close()
        if is_stale:
            log = open_log(RealEnv(), str(self.known.path), CONFIG)
            self._repair(log)
            log.close()
        return how

    def _assert_right(self, log) -> None:
        """Nothing is served that was never written."""
        records = read_all(log).records
        assert {at: data for at, data in records.items() if self.known.held.records.get(at) != data} == {}

    def _repair(self, log) -> bool:
        scrub = Scrub(RealEnv(), f"{self.known.path}/log", log.log_id, 1 << 60, suspects=log.segments.suspects)
        next(pause_s for pause_s in scrub.steps() if pause_s == IDLE_S)
        is_stale, rounds = False, 0
        log.repairs.look(0)
        while log.repairs.suspects.all() and (rounds := rounds + 1) < 20:
            for base in log.repairs.suspects.all():
                steps = log.repairs.steps(base, min(LIMIT, log.end_position), self._piece)
                try:
                    while True:
                        next(steps)
                except StopIteration as end:
                    is_stale = is_stale or end.value.is_stale
            log.repairs.look(0)
        return is_stale

    def _piece(self, base: int, address: int, size: int) -> bytes:
        """The other broker's answer to FETCH."""
        with Path(self.peer.raw.path_of(base)).open("rb") as file:
            file.seek(address)
            return file.read(size)

    def assert_equal(self, what: str) -> None:
        log = open_log(RealEnv(), str(self.known.path), CONFIG)
        try:
            while log.end_position < self.peer.end_position:
                if data := self.peer.raw.read(log.end_position, 1 << 20):
                    log.follower.apply(log.end_position, data)
                else:
                    log.follower.begin_segment(self.peer.raw.next_segment(log.end_position)[1])
            held = read_all(log)
        finally:
            log.close()
        found = self._segments(self.known.path)
        assert [name for name in self.segments if found.get(name) != self.segments[name]] == [], what
        assert (held.topics, held.records, held.progress) == self.known.held[:3], what


@pytest.fixture
def two(caplog):
    caplog.set_level(logging.CRITICAL)  # damage is logged as errors, hundreds of times here
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="penstock-flips-", dir=memory) as folder:
        made = TwoLogs(Path(folder), Random(f"group.{SEED}"))
        yield made
        made.peer.close()


def test_damage_of_one_log_is_repaired_from_the_other(two):
    print(f"seed={SEED}")
    counts, hows = Counter(), Counter()
    kinds = [*KINDS, *(f"deleted {kind}" for kind in DELETED), "segment", "segment"]
    for number in range(FLIPS):
        kind = kinds[number % len(kinds)]
        two.known.restore()
        shutil.rmtree(two.known.path / "diverged", ignore_errors=True)
        if kind.startswith("deleted "):
            what = f"{kind}: {two.delete(kind.removeprefix('deleted '))}"
        else:
            what = str(two.known.flip(kind))
        counts[kind] += 1
        hows[two.mend()] += 1
        two.assert_equal(f"seed={SEED} {number}: {what}")
    print(f"{dict(counts)}, {dict(hows)}")
    assert hows["anew"] <= FLIPS / 10
