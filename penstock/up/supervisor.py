"""The supervisor: keeps the planned processes running until a stop signal. One thread, one poll; nothing blocks for
long.

It is small and not patched by gevent, because it stays in memory as long as the other processes.
"""

import select
import signal
import time
from collections.abc import Callable

from penstock.up.child import Child, trim_log
from penstock.up.errors import ChildFailed
from penstock.up.plan import ChildPlan, UpPlan
from penstock.up.signals import SignalPipe

STOP_S = 4.0  # time for a rank to end before it is killed; two ranks stay below ten seconds
FIRST_TRIES_MAX = 3
IMPATIENT_S = 10.0
SETTLE_S, POLL_S = 10.0, 0.05


class Supervisor:
    """Runs a plan's processes.

    Args:
        say: prints one line for the operator.
        on_serving: called whenever all processes serve: first at the start, then after each restart.
        is_ready: whether the processes that serve have reached each other; waited for up to SETTLE_S.
        companion: an extra process (the demo) that is started when all serve for the first time, is stopped before the
            others, and is never restarted. With `leave_with_companion` its end stops all.
        later: asked after a LOOK signal for the plan of a process that is needed now and was not at the start.
        progress: told, until all processes serve for the first time, for which ones it waits.
    """

    def __init__(
        self,
        plan: UpPlan,
        say: Callable[[str], None],
        on_serving: Callable[[list[Child]], None],
        companion: ChildPlan | None = None,
        leave_with_companion: bool = False,
        is_ready: Callable[[list[Child]], bool] = lambda children: True,
        later: Callable[[], ChildPlan | None] = lambda: None,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._progress = progress
        self._is_ready, self._later, self._looks = is_ready, later, 0
        self._settled_at: float | None = None  # not later than this all that serve are announced
        self.plan, self._say, self._on_serving = plan, say, on_serving
        self.children = [Child(child) for child in plan.children]
        self._companion_plan, self._leave_with_companion = companion, leave_with_companion
        self._companion: Child | None = None
        self._exit_code: int | None = None
        self._announced = False

    def run(self) -> int:
        """Serve until a stop signal (exit code 0) or until the companion ends, where that decides.

        Raises:
            ChildFailed: a process never started to serve; all others have been stopped.
        """
        with SignalPipe() as signals:
            try:
                began = time.monotonic()
                for child in self.children:
                    child.start()
                self._show_progress()
                while not signals.stops and self._exit_code is None:
                    self._turn(signals)
                    began = self._tell_delay(began)
            finally:
                self._stop(signals)
        return self._exit_code or 0

    def _turn(self, signals: SignalPipe) -> None:
        self._wait(signals, self._timeout_s())
        self._start_later(signals)
        for child in list(self.children):
            self._look_after(child)
        self._look_after_companion()
        self._announce_when_ready()
        now = time.monotonic()
        for child in self.children:
            if child.plan.log:
                trim_log(child.plan.log)
            if not child.running and child.start_at <= now:
                child.restarts += 1
                child.start()

    def _start_later(self, signals: SignalPipe) -> None:
        """Start a process that the configuration asks for since the last LOOK signal."""
        if signals.looks == self._looks:
            return
        self._looks = signals.looks
        plan = self._later()
        if plan is not None and plan.name not in {child.name for child in self.children}:
            self._say(f"{plan.name}: starting it, the configuration asks for it now")
            self.children.append(Child(plan))
            self.children[-1].start()

    def _timeout_s(self) -> float:
        if self._settled_at is not None:
            return POLL_S
        due = [child.start_at - time.monotonic() for child in self.children if not child.running]
        return max(0.0, min([*due, 1.0 if not self._announced else 60.0]))

    def _wait(self, signals: SignalPipe, timeout_s: float) -> None:
        poll = select.poll()
        poll.register(signals.fd, select.POLLIN)
        waiting = {child.ready_fd: child for child in self.children if child.ready_fd >= 0}
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(timeout_s * 1000):
            if descriptor == signals.fd:
                signals.drain()
            elif waiting[descriptor].read_ready():
                self._on_child_ready(waiting[descriptor])

    def _on_child_ready(self, child: Child) -> None:
        if child.restarts:
            self._say(f"{child.name}: serves again (pid {child.pid}, restart {child.restarts})")
        if not self._announced:
            self._show_progress()
        self._note_all_serve()

    def _show_progress(self) -> None:
        names = [child.name for child in self.children if not child.facts]
        self._progress(f"Starting {', '.join(names)}" if names else "Connecting")

    def _note_all_serve(self) -> None:
        if self._all_serve():
            self._settled_at = time.monotonic() + SETTLE_S

    def _all_serve(self) -> bool:
        """Whether all processes serve; after the first time, those that the others need."""
        return all(child.facts or (self._announced and not child.plan.is_essential) for child in self.children)

    def _announce_when_ready(self) -> None:
        """Announce the processes once they have reached each other: a proxy serves also without its engine."""
        if self._settled_at is None:
            return
        if not self._all_serve():
            self._settled_at = None
        elif self._is_ready(self.children) or time.monotonic() >= self._settled_at:
            self._settled_at = None
            self._announced = True
            self._on_serving(self.children)
            if self._companion_plan and self._companion is None:
                self._companion = Child(self._companion_plan)
                self._companion.start()

    def _look_after(self, child: Child) -> None:
        status = child.reap()
        if status is None:
            return
        tail = child.log_tail()
        if not child.ever_ready and child.exits_in_row >= FIRST_TRIES_MAX and not child.plan.is_essential:
            self._go_on_without(child)
            return
        if not child.ever_ready and child.exits_in_row >= FIRST_TRIES_MAX:
            raise ChildFailed(f"{child.name}: does not start ({ending(status)}): see {child.plan.log}\n{tail}")
        self._say(f"{child.name}: {ending(status)}, restarting it on the same port (log: {child.plan.log})")

    def _go_on_without(self, child: Child) -> None:
        """Leave out a process that does not start and that no other one needs."""
        last = (child.log_tail(1) or "no reason in its log").strip()
        self._say(f"{child.name}: does not start, going on without it: {last} (log: {child.plan.log})")
        self.children.remove(child)
        self._note_all_serve()

    def _look_after_companion(self) -> None:
        status = self._companion.reap() if self._companion else None
        if status is not None and self._leave_with_companion:
            self._exit_code = status if status >= 0 else 1

    def _tell_delay(self, since: float) -> float:
        """Report every IMPATIENT_S which processes do not serve yet; return the time of the last report."""
        if self._announced or time.monotonic() - since < IMPATIENT_S:
            return since
        if names := ", ".join(child.name for child in self.children if not child.facts):
            self._say(f"waiting for {names} (after a crash, checking a large log takes time)")
        return time.monotonic()

    def _stop(self, signals: SignalPipe) -> None:
        if self._companion:
            self._stop_all([self._companion], signals)
        for rank in sorted({child.plan.stop_rank for child in self.children}):
            self._stop_all([child for child in self.children if child.plan.stop_rank == rank], signals)

    def _stop_all(self, children: list[Child], signals: SignalPipe) -> None:
        """Send TERM, then KILL after STOP_S, or at once after a second signal from the operator."""
        deadline, patience = time.monotonic() + STOP_S, signals.stops
        for child in children:
            child.signal(signal.SIGTERM)
        while any(child.running for child in children):
            late = time.monotonic() >= deadline or signals.stops > patience
            for child in children:
                if late and child.running:
                    self._say(f"{child.name}: does not stop, killing it")
                    child.signal(signal.SIGKILL)
                child.reap()
            if any(child.running for child in children):
                self._wait(signals, 0.05 if late else min(0.5, max(0.0, deadline - time.monotonic())))


def ending(status: int) -> str:
    """A wait status in words."""
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"ended with code {status}"
