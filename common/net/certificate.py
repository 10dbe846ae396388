"""Certificate of a TLS listener: loaded again when its files change, and watched for its end.

name | type, unit | what to do about it
penstock_certificate_left_seconds | s until it expires; below 0 clients refuse it | below 14 days: renew it
penstock_certificate_refused | 1: changed files cannot be used | the log says why; the old ones are in use
"""

import logging
import ssl
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
from prometheus_client.core import GaugeMetricFamily, Metric

from common.config.blocking import run_blocking
from common.file_looks import FileLooks
from common.limited_log import LimitedLog
from common.net.tls import server_context
from common.net.validity import DAY_S, NotACertificate, Validity, validity_of
from common.readiness import Note
from common.secret_file import secret_fault

CHECK_S = 2.0
"""Interval of the looks at the files. Changed files are loaded once two looks have found the same."""

log = logging.getLogger("penstock.net")
limited = LimitedLog(log)
daily = LimitedLog(log, interval_s=DAY_S)


class ServerCertificate:
    """The TLS context of a listener. Each new connection takes the newest one; open connections keep theirs.

    Args:
        certificate: PEM file with the chain; key: PEM file with its private key.
        client_ca: PEM file with the authorities of client certificates, or None.
        now_s: Unix time.
    Raises:
        OSError, ssl.SSLError, NotACertificate: a file is missing or cannot be used.
    """

    def __init__(
        self, certificate: str, key: str, client_ca: str | None = None, now_s: Callable[[], float] = time.time
    ) -> None:
        self._certificate, self._key, self._client_ca, self._now_s = certificate, key, client_ca, now_s
        self.fault = ""  # why changed files are not in use
        self._looks = FileLooks([certificate, key, client_ca])
        self._context, self.validity = self._load()

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """As ssl.SSLContext.wrap_bio."""
        return self._context.wrap_bio(*arguments, **named)

    @property
    def left_s(self) -> float:
        """Seconds until the first certificate of the chain ends; negative: it has ended."""
        return self.validity.ends_s - self._now_s()

    def check(self) -> None:
        """Load changed files, and log an end that is near; called every CHECK_S."""
        if run_blocking(self._looks.are_changed):
            self._replace()
        if isinstance(state := self._state(), Note):
            daily.warning("certificate=%s: %s", self._certificate, state)

    def health(self) -> bool | str:
        """The state of the certificate for /readyz."""
        state = self._state()
        if not self.fault:
            return state
        return Note(f"{self.fault}; {state if isinstance(state, Note) else 'the certificate loaded before is in use'}")

    def _state(self) -> bool | str:
        fault = self.validity.fault(self._now_s())
        return Note(f"{fault}: replace {self._certificate}") if fault else True

    def _replace(self) -> None:
        try:
            self._context, self.validity = run_blocking(self._load_checked)
        except (OSError, ssl.SSLError, NotACertificate) as error:
            self.fault = f"the changed files cannot be used: {error}"
            limited.error("certificate=%s: %s: the certificate loaded before is in use", self._certificate, self.fault)
            return
        self._looks.accept()
        self.fault = ""
        log.info("certificate=%s: loaded again, for new connections", self._certificate)

    def _load_checked(self) -> tuple[ssl.SSLContext, Validity]:
        if fault := secret_fault(Path(self._key), 1, "--tls-key"):
            raise OSError(fault)
        context, validity = self._load()
        if validity.ends_s < self._now_s() < self.validity.ends_s:
            raise NotACertificate(f"it expired at {validity.end}")
        return context, validity

    def _load(self) -> tuple[ssl.SSLContext, Validity]:
        context = server_context(self._certificate, self._key, self._client_ca)
        return context, validity_of(Path(self._certificate).read_text(errors="replace"))


class CertificateWatch:
    """The certificate of a process, if it has a TLS listener: its checks, its metrics, its state for /readyz.

    Args:
        options: with tls_listen, tls_cert, tls_key and tls_client_ca.
    """

    def __init__(self, options: Namespace) -> None:
        self.certificate: ServerCertificate | None = None
        if options.tls_listen:
            self.certificate = ServerCertificate(options.tls_cert, options.tls_key, options.tls_client_ca)
            gevent.spawn(self._run, self.certificate)

    def _run(self, certificate: ServerCertificate) -> None:
        while True:
            try:
                certificate.check()
            except Exception:
                limited.exception("certificate: the check failed")
            gevent.sleep(CHECK_S)

    def health(self) -> dict[str, bool | str]:
        return {} if self.certificate is None else {"certificate": self.certificate.health()}

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        if self.certificate is not None:
            for name, text, value in (
                ("left_seconds", "until the TLS certificate expires. Below 0: clients refuse it.", self.certificate.left_s),
                ("refused", "1: changed TLS files cannot be used; the log says why.", int(bool(self.certificate.fault))),
            ):  # fmt: skip
                yield GaugeMetricFamily(f"penstock_certificate_{name}", text, value=value)
