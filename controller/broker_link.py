"""The link to one registered broker, in a thread of its own: dialled again and again until it is closed."""

import logging
import threading
import time
from argparse import ArgumentTypeError
from collections.abc import Callable

from common.address import engine_address
from common.cluster.coordination import VersionedRecord
from common.limited_log import LimitedLog
from controller.group_controller import Heard
from controller.hearing import Hearing
from engine.client.controller_link import ControllerLink, RefusedRecord
from engine.link.errors import LinkError

limited = LimitedLog(logging.getLogger("penstock.controller"))
DIAL_S = 1.0
SILENT_S = 2.0
"""A link without a report for so long is closed and dialled again: the machine at its end may be gone."""


class BrokerLink:
    """
    Args:
        address: HOST:PORT of the registration.
        on_change: called in the link's thread after each report, and when the link is lost.
    Attributes:
        address: as given.
        heard: the last report; see `Hearing`.
    """

    def __init__(self, group: str, broker: str, address: str, key: bytes, on_change: Callable[[], None]) -> None:
        self.address = address
        self._hearing = Hearing()
        self._group, self._broker, self._key, self._on_change = group, broker, key, on_change
        self._link: ControllerLink | None = None
        self._closed = threading.Event()
        threading.Thread(target=self._run, name=f"broker {broker}", daemon=True).start()

    @property
    def heard(self) -> Heard | None:
        return self._hearing.heard

    def push(self, record: VersionedRecord) -> None:
        """Send a record, unless the broker has it already. Without a connection it is not sent: see `heard`."""
        link = self._link
        if link is not None and self._hearing.lacks(record.version):
            link.push(record)

    def close(self) -> None:
        """End the link, without waiting for its thread."""
        self._closed.set()
        if (link := self._link) is not None:
            link.end()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._hearing.begins(time.monotonic())
            try:
                self._serve()
            except (OSError, LinkError, ValueError) as error:
                if not self._closed.is_set():
                    limited.warning(
                        "group=%s broker=%s: no link to %s: %s", self._group, self._broker, self.address, error,
                        about=f"{self._group} {self._broker}",
                    )  # fmt: skip
            self._link = None
            pause_s = self._hearing.ended(time.monotonic())
            if self.heard is None:
                self._on_change()
            self._closed.wait(pause_s)
        self._hearing = Hearing()

    def _serve(self) -> None:
        """One connection, until it ends. Raises OSError, LinkError; ValueError: the address is none."""
        with ControllerLink(_parsed(self.address), self._key, timeout_s=DIAL_S) as link:
            hello = link.hello
            if (hello.broker_group, hello.broker or self._broker) != (self._group, self._broker):
                raise LinkError(f"there answers broker {hello.broker or '?'} of group {hello.broker_group}")
            while not self._closed.is_set():
                found = link.receive(SILENT_S)
                if isinstance(found, RefusedRecord):
                    limited.warning(
                        "group=%s broker=%s: it refuses a record: %s", self._group, self._broker, found.sentence,
                        about=f"{self._group} {self._broker}",
                    )  # fmt: skip
                    continue
                self._hearing.reported(found, time.monotonic())
                self._link = link
                self._on_change()


def _parsed(address: str) -> tuple[str, int]:
    """Raises ValueError."""
    try:
        return engine_address(address)
    except ArgumentTypeError as error:
        raise ValueError(str(error)) from None
