"""Levels of disk usage: fine, warn, delete old segments, refuse appends."""

import logging
from enum import IntEnum

from common.limited_log import LimitedLog
from engine.config import LogConfig
from engine.env.base import Env

logger = logging.getLogger(__name__)
limited = LimitedLog(logger)

BACK_PERCENT = 1.0
"""A level ends only when usage is this much below where it begins, so that the log does not flap."""


class DiskLevel(IntEnum):
    """Measures by disk usage; each level includes those before."""

    FINE, WARN, DELETE, REFUSE = range(4)


class DiskWatch:
    """Watches the file system and the directory that hold the log. `check()` is three system calls.

    Attributes:
        is_gone: the directory was removed, moved or replaced: what is appended would not be found by the next start.
    """

    def __init__(self, env: Env, directory: str, config: LogConfig) -> None:
        self._env, self._directory = env, directory
        self._percents = (config.disk_warn_percent, config.disk_delete_percent, config.disk_refuse_percent)
        self._reserves = (0, 2 * config.disk_reserve_bytes, config.disk_reserve_bytes)
        self._is_there = env.watch_directory(directory)
        self.is_gone = False
        self.level = DiskLevel.FINE
        self.is_known = False
        """Whether the disk was measured since the start."""
        self.used = self.free = 0

    @property
    def sentence(self) -> str:
        """The state in words."""
        return (
            f"the disk of {self._directory} is {self.percent:.1f} % full with {self.free >> 20} MiB free "
            f"(appends are refused from {self._percents[2]} % on, or below {self._reserves[2] >> 20} MiB)"
        )

    @property
    def health(self) -> bool | str:
        """For /readyz: True, or a sentence."""
        if not self.is_known:
            return "the disk was not measured yet"
        if self.is_gone:
            return f"sends are refused: {self._missing}"
        return self.level < DiskLevel.REFUSE or f"disk full: sends are refused: {self.sentence}"

    @property
    def refusal(self) -> str:
        """What a sender is told while appends are refused."""
        if self.is_gone:
            return f"disk error: {self._missing}; nothing was stored"
        return f"disk full: {self.sentence}; nothing was stored"

    @property
    def _missing(self) -> str:
        return f"{self._directory} was removed, moved or replaced: put it back, or stop the engine"

    @property
    def percent(self) -> float:
        """Used part of the usable space, as df counts it."""
        return 100 * self.used / max(self.used + self.free, 1)

    def check(self) -> DiskLevel:
        """Measure again, log a change of level, and return it. The level stays when the disk cannot be measured."""
        was_gone, self.is_gone = self.is_gone, not self._is_there()
        if self.is_gone:
            if not was_gone:
                logger.error("disk=%s: %s", self._directory, self.health)
            return self.level
        try:
            self.used, self.free = self._env.disk(self._directory)
        except OSError as error:
            limited.warning("disk=%s: %s", self._directory, error)
            return self.level
        self.is_known = True
        before, self.level = (
            self.level,
            max((level for level in DiskLevel if self._reached(level)), default=DiskLevel.FINE),
        )
        if self.level != before:
            logger.log(
                logging.WARNING if self.level > before else logging.INFO,
                "disk=%s level=%s: %s", self._directory, self.level.name.lower(), self.sentence,
            )  # fmt: skip
        return self.level

    def _reached(self, level: DiskLevel) -> bool:
        if level == DiskLevel.FINE:
            return True
        stays = self.level >= level
        percent = self._percents[level - 1] - (BACK_PERCENT if stays else 0)
        reserve = self._reserves[level - 1] * (1 + (BACK_PERCENT / 10 if stays else 0))
        return self.percent >= percent or self.free < reserve
