"""Secrets of applications: which of them a reader of the configuration learns, and which cannot be derived here."""

from pathlib import Path

from common.admin.applications import StoredKeys, stored_keys
from common.config import open_store
from common.config.errors import ConfigError
from common.config.root_keys import OPTION, root_keys_of
from penstock.doctor.finding import DoctorFinding

SUBJECT = "secrets of applications"
ALL = 1 << 30


def of_applications(url: str, secrets_key: Path | None) -> list[DoctorFinding]:
    """
    Args:
        url: of the configuration; empty: there is none to look at.
        secrets_key: file of root keys; None: not known here.
    """
    if not url:
        return []
    try:
        store = open_store(url)
        try:
            entries = store.entries("application", limit=ALL)
        finally:
            store.close()
        known = root_keys_of(str(secrets_key)).ids if secrets_key else None
    except ConfigError as error:
        return [DoctorFinding(SUBJECT, "note", f"not looked at: {error}")]
    stored = stored_keys((name, each.value) for name, each in entries)
    return [_stored(stored), *_missing(stored, known)]


def _stored(stored: StoredKeys) -> DoctorFinding:
    if not stored.clear:
        return DoctorFinding(SUBJECT, "ok", f"none in clear, {stored.derived.total():,} derived from root keys")
    words = f"{stored.in_clear}: each reader of the configuration learns them, first that of {min(stored.clear)}"
    advice = (
        f"make new keys where {OPTION} is given (`penstock app rotate`), change the clients over, revoke the old keys"
    )
    return DoctorFinding(SUBJECT, "note", words, advice)


def _missing(stored: StoredKeys, known: tuple[str, ...] | None) -> list[DoctorFinding]:
    missing = sorted(stored.derived.keys() - set(known)) if known is not None else []
    if not missing:
        return []
    words = f"{stored.derived[missing[0]]:,} keys need root key {missing[0]}, which the file here does not have"
    return [
        DoctorFinding(SUBJECT, "note", words, f"add it to the file of {OPTION}, or give these applications new keys")
    ]
