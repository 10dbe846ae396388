"""Records how far the engine's log is durable in the configuration: by it proxies recognise an older copy of the log."""

import logging

import gevent

from common.clock import SystemClock
from common.config.engine_records import EngineRecords
from common.limited_log import LimitedLog
from engine.log import Log
from engine.server.policy.config_follower import ConfigFollower

REPORT_S = 10.0
limited = LimitedLog(logging.getLogger("penstock.engine"))


class LogPositionReport:
    """Writes the record every REPORT_S while the log grows, and at the end; never per message.

    Args:
        group: the engine's broker group.
    """

    def __init__(self, follower: ConfigFollower, group: str, store: Log) -> None:
        self._follower, self._group, self._store = follower, group, store
        self._last = -1
        self._running = gevent.spawn(self._run)

    def stop(self) -> None:
        """Write the last position. Blocks for the store."""
        self._running.kill()
        self._report()

    def _run(self) -> None:
        while True:
            gevent.sleep(REPORT_S)
            try:
                self._report()
            except Exception:
                limited.exception("the position of the log cannot be recorded")

    def _report(self) -> None:
        config, position = self._follower.store, self._store.durable_position
        if config is None or position == self._last:
            return
        records = EngineRecords(config, SystemClock())
        record = records.read(self._group)
        if record is not None and record.log_id != self._store.log_id.hex():
            limited.error(
                "broker_group=%s: its messages are in log %s, this engine has log %s: proxies refuse this engine until "
                "an operator accepts it",
                self._group, record.log_id, self._store.log_id.hex(),
            )  # fmt: skip
            return
        records.note(self._group, self._store.log_id.hex(), position)
        self._last = position
