"""Simulated processes: they start, end, and stand still while they are stopped by a signal."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from engine.env.simulated import PowerCut, ProcessEnded
from tests.sim.group.network import End
from tests.sim.machine import EndAt
from tests.sim.sent import Broken

if TYPE_CHECKING:
    from tests.sim.group.cluster import Cluster

log = logging.getLogger("penstock.sim")


class Process:
    """One process on a machine of its own.

    Attributes:
        number: counts starts; calls for an earlier one do nothing.
        is_up: it runs, or is stopped by a signal. has_power: its machine runs.
    """

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self.cluster, self.world, self.network, self.name = cluster, cluster.world, cluster.network, name
        self.number = 0
        self.is_up = False
        self.has_power = True
        self._stops = 0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self.network.processes[name] = self

    @property
    def is_stopped(self) -> bool:
        """Whether it stands still."""
        return self._stops > 0

    def begin(self) -> None:
        """Another start of the process."""
        self.number += 1
        self.is_up = self.has_power = True

    def run(self, number: int, call: Callable[[], None]) -> None:
        """Run a part of one start of the process: now, once it goes on, or never."""
        if number != self.number or not self.is_up:
            return
        if self._stops:
            self._waiting.append((number, call))
            return
        self.guarded(call)

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Run a part of it after a delay."""
        number = self.number
        self.world.after(delay_ms, lambda: self.run(number, call))

    def stop_signal(self) -> None:
        """SIGSTOP."""
        self._stops += 1

    def continue_signal(self) -> None:
        """SIGCONT: all that has come meanwhile happens now, in its order."""
        self._stops = max(0, self._stops - 1)
        while self._waiting and not self._stops:
            waiting, self._waiting = self._waiting, []
            for number, call in waiting:
                self.run(number, call)

    def guarded(self, call: Callable[[], None]) -> None:
        """Run a part of the process, which may end it."""
        try:
            call()
            self.after_call()
        except ProcessEnded as error:
            self.end(power_cut=False, reason=str(error).splitlines()[0])
        except EndAt as error:
            self.end(power_cut=False, reason=f"killed in {error}")
        except PowerCut as error:
            self.end(power_cut=True, reason=str(error))
        except Broken:
            raise
        except Exception:
            # A loop logs it and turns on. The run fails by the log, unless an injected fault explains it.
            log.exception("the loop of %s caught an exception", self.name)

    def after_call(self) -> None:
        """At the end of a turn."""

    def end(self, *, power_cut: bool, reason: str) -> None:
        """The process ends, or its machine loses power."""
        self.world.note(self.name, "ends", power_cut, reason)
        self.is_up = False
        self.has_power = not power_cut
        self._waiting.clear()
        self.network.process_ended(self, is_silent=power_cut)

    def accept(self, end: End) -> None:
        """Another process has connected."""
        raise NotImplementedError
