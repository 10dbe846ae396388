"""Period in which the certificates of a PEM file are valid, read from their DER form (RFC 5280, section 4.1)."""

import ssl
from datetime import UTC, datetime
from typing import NamedTuple

DAY_S = 86_400
NOTED_DAYS_MAX = 14
NOTED_PART = 5
"""The end is noted NOTED_DAYS_MAX before, and for certificates of a few days in the last fifth of their time."""

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18


class Validity(NamedTuple):
    """Unix seconds of the first and of the last moment."""

    begins_s: int
    ends_s: int

    @property
    def end(self) -> str:
        """The end for people."""
        return f"{datetime.fromtimestamp(self.ends_s, UTC):%Y-%m-%d %H:%M} UTC"

    def fault(self, now_s: float) -> str:
        """Why an operator should look, in one sentence; empty: valid for long enough."""
        left_s = self.ends_s - now_s
        if left_s < 0:
            return f"expired at {self.end}, clients refuse it"
        if now_s < self.begins_s:
            return "not valid yet by this machine's clock, clients may refuse it"
        if left_s < min(NOTED_DAYS_MAX * DAY_S, (self.ends_s - self.begins_s) / NOTED_PART):
            return f"expires at {self.end}, in {left_s / DAY_S:.1f} days"
        return ""


class NotACertificate(ValueError):
    """The text holds no certificate, or a damaged one."""


def validity_of(pem: str) -> Validity:
    """The period in which every certificate of the text is valid. Raises NotACertificate."""
    periods = [_period(each.partition(_END)[0]) for each in pem.split(_BEGIN)[1:]]
    if not periods:
        raise NotACertificate("there is no certificate in PEM form in it")
    return Validity(max(each.begins_s for each in periods), min(each.ends_s for each in periods))


def _period(base64: str) -> Validity:
    try:
        der = ssl.PEM_cert_to_DER_cert(_BEGIN + base64 + _END)
        _, at, _ = _head(der, _head(der, 0)[1])  # Certificate, then tbsCertificate
        if _head(der, at)[0] == _VERSION:
            at = _head(der, at)[2]
        for _ in ("serialNumber", "signature", "issuer"):
            at = _head(der, at)[2]
        tag, first, _ = _head(der, at)
        if tag != _SEQUENCE:
            raise NotACertificate("a certificate has no validity where it should be")
        second = _head(der, first)[2]
        return Validity(_time(der, first), _time(der, second))
    except NotACertificate:
        raise
    except (ValueError, IndexError) as error:
        raise NotACertificate("a certificate in it is damaged") from error


def _head(der: bytes, at: int) -> tuple[int, int, int]:
    """Tag, start and end of the value at `at`."""
    tag, size, start = der[at], der[at + 1], at + 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[at + 2 : start], "big")
    if start + size > len(der):
        raise IndexError(at)
    return tag, start, start + size


def _time(der: bytes, at: int) -> int:
    tag, start, end = _head(der, at)
    if tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise NotACertificate("a certificate has a time of unknown form")
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp())
