"""The copies to Kafka of one bridge: a copier per entry `copy_out` that no other bridge has claimed.

A claim only saves work: two copiers of one copy would fence each other for ever, but store nothing twice.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from common.config.definitions import KafkaClusterDefinition
from common.config.definitions.copies import CopyOutDefinition
from common.config.errors import StoreUnavailable
from common.config.store import ConfigStore
from common.config.view import ConfigView
from common.limited_log import LimitedLog
from common.readiness import Note
from kafka_bridge.copy_in.cluster import REFUSED_CLAIMS_MAX

limited = LimitedLog(logging.getLogger("penstock.kafka_bridge"))
LOOK_S = 1.0
"""Interval between two tries to claim copies, and two looks whether claims are still held."""
STOP_S = 5.0


class RunningCopier(Protocol):
    """An OutCopier, or an object with the same methods."""

    copied: int
    skipped: int

    @property
    def standing(self) -> str: ...

    def stop(self) -> None: ...
    def join(self, timeout_s: float) -> bool: ...


class _Running(NamedTuple):
    wanted: tuple[CopyOutDefinition, KafkaClusterDefinition]
    copier: RunningCopier


class OutCopies:
    """Begins at once.

    Args:
        view: the configuration, which is followed.
        store: claims copies among bridges.
        make: begins a copy. Raises KafkaFault, DriverMissing.
    """

    def __init__(
        self, view: ConfigView, store: ConfigStore,
        make: Callable[[CopyOutDefinition, KafkaClusterDefinition], RunningCopier],
    ) -> None:  # fmt: skip
        self._view, self._store, self._make = view, store, make
        self._running: dict[str, _Running] = {}
        self._faults: dict[str, str] = {}
        self._changed, self._is_closed, self._turn = threading.Event(), False, 0
        view.on_change(self._changed.set)
        self._keeper = threading.Thread(target=self._keep, name="copies out", daemon=True)
        self._keeper.start()

    @property
    def copiers(self) -> dict[str, RunningCopier]:
        """By topic: those that this bridge runs now."""
        return {name: each.copier for name, each in sorted([*self._running.items()])}

    def health(self) -> dict[str, bool | str]:
        """InCopies of this bridge for /readyz; one that does not go on is a note."""
        faults = {**self._faults, **{name: each.copier.standing for name, each in [*self._running.items()]}}
        return {f"copy_out {name}": Note(fault) if fault else True for name, fault in faults.items()}

    def close(self) -> None:
        """Stop all copiers after their present transactions, and release the copies."""
        self._is_closed = True
        self._changed.set()
        self._keeper.join()
        self._end([*self._running])

    def _keep(self) -> None:
        while not self._is_closed:
            try:
                self._follow()
                for each in [*self._running.values()]:
                    if standing := each.copier.standing:
                        limited.warning("%s", standing, about=each.wanted[0].name)
            except StoreUnavailable as fault:
                limited.warning("copies to Kafka: the configuration store is away: %s", fault)
            except Exception:
                limited.exception("copies to Kafka: internal error")
            self._changed.wait(LOOK_S)
            self._changed.clear()

    def _follow(self) -> None:
        wanted = {}
        for copy in self._view.all_of(CopyOutDefinition):
            if (cluster := self._view.kafka_cluster(copy.cluster)) is not None:
                wanted[copy.name] = (copy, cluster)
        ending = [
            name
            for name, running in self._running.items()
            if wanted.get(name) != running.wanted or not self._store.holds(_claim(name))
        ]
        self._end(ending)
        for name in [name for name in self._faults if name not in wanted]:
            del self._faults[name]
        refused, missing = 0, [name for name in wanted if name not in self._running]
        self._turn += 1
        for at in range(len(missing)):
            name = missing[(at + self._turn) % len(missing)]
            if self._store.claim(_claim(name)):
                self._start(name, wanted[name])
            elif (refused := refused + 1) >= REFUSED_CLAIMS_MAX:
                break

    def _start(self, name: str, wanted: tuple[CopyOutDefinition, KafkaClusterDefinition]) -> None:
        try:
            copier = self._make(*wanted)
        except Exception as fault:
            self._faults[name] = f"copy_out={name}: {fault}"
            limited.warning("%s", self._faults[name])
            self._store.release(_claim(name))
            return
        self._faults.pop(name, None)
        self._running[name] = _Running(wanted, copier)

    def _end(self, names: Sequence[str]) -> None:
        """End these copies, all at once, and release them."""
        for name in names:
            self._running[name].copier.stop()
        ends = time.monotonic() + STOP_S
        for name in names:
            if not self._running.pop(name).copier.join(max(0.0, ends - time.monotonic())):
                limited.warning("copy_out=%s: it does not end in time: the next one fences it", name)
            self._store.release(_claim(name))


def _claim(name: str) -> str:
    return f"copy_out/{name}"
