"""All groups of a coordination: one worker each, and the candidacy of this process."""

import logging
import threading
from argparse import ArgumentTypeError

from common.address import engine_address, is_own_machine
from common.cluster.coordination import Coordination
from common.config.errors import ConfigError
from common.limited_log import LimitedLog
from common.readiness import Note
from controller.group_worker import GroupWorker

log = logging.getLogger("penstock.controller")
limited = LimitedLog(log)
LOOK_S = 1.0
CONTACT_S_MAX = 5.0
STOP_S = 2.0


class Controller:
    """Follows all groups from `start` to `stop`; decides while it is elected.

    Attributes:
        workers: by the group's name. A group that was seen once is followed to the end.
    """

    def __init__(self, coordination: Coordination, name: str, key: bytes) -> None:
        self.workers: dict[str, GroupWorker] = {}
        self._coordination, self._name, self._key = coordination, name, key
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._was_elected = False
        self._places: dict[str, bool] = {}  # addresses of brokers, and whether they are of this machine
        self._thread = threading.Thread(target=self._follow, name="groups", daemon=True)

    def start(self) -> None:
        """Stand for election and follow the groups; does not wait for the coordination."""
        self._coordination.stand(self._name)
        self._coordination.watch_groups(self._wake.set)
        self._thread.start()

    def stop(self) -> None:
        """End the candidacy and all links."""
        self._stopped.set()
        self._wake.set()
        for worker in self.workers.values():
            worker.stop()
        self._coordination.close()  # ends requests that wait
        self._thread.join(STOP_S)

    @property
    def is_elected(self) -> bool:
        """Whether this process decides."""
        return self._coordination.is_controller()

    def health(self) -> dict[str, bool | str]:
        """The conditions of /readyz."""
        age_s = self._coordination.contact_age_s()
        state: dict[str, bool | str] = {"coordination": True, "election": True}
        if age_s > CONTACT_S_MAX:
            state["coordination"] = "no contact to the coordination of broker groups"
        elif not self.is_elected:
            state["election"] = Note(f"the elected controller is {self._coordination.controller() or 'not known'}")
        state["session"] = Note(fault) if (fault := self._coordination.session_fault) else True
        for name, worker in list(self.workers.items()):
            sentence = worker.controller.sentence
            state[f"group {name}"] = Note(sentence) if sentence and self.is_elected else True
        return state

    def _follow(self) -> None:
        while not self._stopped.is_set():
            try:
                self._look()
            except ConfigError as error:
                limited.warning("%s", error)
            except Exception:
                limited.exception("following the groups failed, trying again")
            self._wake.wait(LOOK_S)
            self._wake.clear()

    def _is_here(self, address: str) -> bool:
        """Whether a broker is on this machine. If that ends, the controller should not be the elected one."""
        if not self._places.get(address):
            try:
                self._places[address] = is_own_machine(engine_address(address).host)
            except ArgumentTypeError:
                return False
        return self._places[address]

    def _look(self) -> None:
        if self.is_elected != self._was_elected:
            self._was_elected = not self._was_elected
            log.info("name=%s: %s", self._name, "elected" if self._was_elected else "not elected any more")
        self._coordination.rank(sum(worker.turns.weight(self._is_here) for worker in self.workers.values()))
        for group in self._coordination.groups():
            if group not in self.workers and not self._stopped.is_set():
                worker = GroupWorker(group, self._coordination, self._key)
                self.workers = {**self.workers, group: worker}  # a new one: metrics read it in another thread
                worker.start()
