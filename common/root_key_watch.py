"""Root keys of a proxy: loaded again when their file changes, and compared with those that the configuration needs.

name | type, unit | what to do about it
penstock_root_keys_loaded{root} | 1 for each root key in use, by its id | make keys by it once every proxy has it
penstock_root_keys_missing | root keys that secrets need and this proxy does not have | above 0: add them to --secrets-key
penstock_root_keys_refused | 1: a changed file cannot be used | the log says why; the keys loaded before are in use
"""

import logging
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric

from common.config.blocking import run_blocking
from common.config.definitions import ApplicationDefinition
from common.config.errors import InvalidEntry
from common.config.root_keys import OPTION, RootKeys, load_root_keys
from common.config.view import ConfigView
from common.file_looks import FileLooks
from common.limited_log import LimitedLog
from common.readiness import Note

CHECK_S = 1.0
"""Interval of the looks. A changed file is loaded once two looks have found the same."""

log = logging.getLogger("penstock.credentials")
limited = LimitedLog(log)
_ROOT = re.compile(rb'"root":"([!-~]{1,64}?)"')


class RootKeyWatch:
    """
    Args:
        path: file of --secrets-key; None: the option is not given.
        view: gets the keys, and voids its verdicts when they change.
    Raises:
        InvalidEntry: the file cannot be used.
    """

    def __init__(self, path: str | None, view: ConfigView) -> None:
        self._path, self._view = path, view
        self._looks = FileLooks([path])
        self.fault = ""  # why a changed file is not in use
        self.missing: dict[str, list[str]] = {}  # applications by the id of the root key that they need
        self._compared: tuple[int, RootKeys] | None = None
        if path is not None:
            view.root_keys = load_root_keys(Path(path))
        self._compare()

    def start(self) -> "RootKeyWatch":
        """Look again and again from now on."""
        threading.Thread(target=self._run, name="root-keys", daemon=True).start()
        return self

    def _run(self) -> None:
        while True:
            time.sleep(CHECK_S)
            try:
                self.check()
            except Exception:
                limited.exception("secrets-key: the check failed")

    def check(self) -> None:
        """Load a changed file, and compare a changed configuration with the keys; called every CHECK_S."""
        if run_blocking(self._looks.are_changed):
            self._load()
        self._compare()

    def _load(self) -> None:
        assert self._path is not None, "without a file nothing changes"
        path = Path(self._path)
        try:
            loaded = run_blocking(lambda: load_root_keys(path))
        except InvalidEntry as error:
            self.fault = f"the changed file cannot be used: {error}"
            limited.error("secrets-key=%s: %s: the keys loaded before are in use", path, self.fault)
            return
        self._looks.accept()
        self.fault, self._view.root_keys = "", loaded
        self._view.renew()
        log.info("secrets-key=%s: loaded again: root keys %s", path, ", ".join(loaded.ids))

    def _compare(self) -> None:
        """Find the root keys that the configuration needs and that are not here."""
        state = self._view.version[ApplicationDefinition.kind], self._view.root_keys
        if state != self._compared:
            self._compared = state
            self.missing = run_blocking(lambda: self._missing_of(state[1]))
            for root, names in self.missing.items():
                limited.warning("%s", self._sentence(root, names), about=root)

    def _missing_of(self, keys: RootKeys) -> dict[str, list[str]]:
        needed = {root.decode() for root in self._view.stored(ApplicationDefinition.kind).found(_ROOT)}
        return {
            root: self._view.names_with(ApplicationDefinition.kind, f'"root":"{root}"'.encode())
            for root in sorted(needed - set(keys.ids))
        }

    def _sentence(self, root: str, names: list[str]) -> str:
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        lack = f"{OPTION} {self._path} does not have it" if self._path else f"{OPTION} is not given"
        return f"application {names[0]}{more}: keys are refused, they need root key {root}: {lack}"

    def health(self) -> dict[str, bool | str]:
        """The state for /readyz; none where secrets are neither derived nor to be derived."""
        notes = [self._sentence(root, names) for root, names in self.missing.items()][:1]
        if len(self.missing) > 1:
            notes.append(f"{len(self.missing) - 1} more root keys are missing")
        if self.fault:
            notes.append(f"{self.fault}; the keys loaded before are in use")
        if notes:
            return {"secrets": Note("; ".join(notes))}
        return {"secrets": True} if self._path is not None else {}

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        loaded = GaugeMetricFamily("penstock_root_keys_loaded", "1 for each root key in use.", labels=["root"])
        for root in self._view.root_keys.ids:
            loaded.add_metric([root], 1)
        yield loaded
        for name, text, value in (
            ("missing", "root keys that secrets need and this proxy does not have", len(self.missing)),
            ("refused", "1: a changed file of root keys cannot be used; the log says why.", int(bool(self.fault))),
        ):
            yield GaugeMetricFamily(f"penstock_root_keys_{name}", text, value=value)
