"""Snapshots: the last configuration that a process saw, for a start while the store is unavailable.

Line 1: JSON {"format":1,"saved_at_ms","sha256" of the file with these 64 characters left out,
"identity": of the store, or null, "last_known":{kind:{name: value}}, "unreadable_since_ms":{kind:{name: Unix time}},
"kinds":{kind:{"revisions":[…],"sizes":[…]}}}. Then all kinds' buckets in that order, as in the store. Mode 0600,
because it holds the applications' secrets. Its modification time is the last time when the process knew it to be
current. Earlier snapshots are kept beside it as FILE.1 (the newest) to FILE.3, at least PREVIOUS_GAP_S apart.
"""

import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from common.config import files
from common.config.identity import StoreIdentity
from common.limited_log import LimitedLog

PREVIOUS_MAX = 3
PREVIOUS_GAP_S = 3600.0

limited = LimitedLog(logging.getLogger("penstock.config"))


class Buckets(NamedTuple):
    """One kind as followed: payloads are at the index's revisions or newer."""

    revisions: tuple[int, ...]
    payloads: tuple[bytes, ...]


class Snapshot(NamedTuple):
    """A snapshot as read.

    Attributes:
        identity: of the store; None in one of an earlier version.
        last_known: readable values of entries that could not be read; see last_known.py.
        unreadable_since_ms: when these entries were first seen; empty in one of an earlier version.
    """

    kinds: dict[str, Buckets]
    current_at_ms: int
    identity: StoreIdentity | None
    last_known: dict[str, dict[str, Any]]
    unreadable_since_ms: dict[str, dict[str, int]]


def save(
    path: Path, kinds: dict[str, Buckets], now_ms: int, identity: StoreIdentity | None = None,
    last_known: Mapping[str, Mapping[str, Any]] | None = None,
    unreadable_since_ms: Mapping[str, Mapping[str, int]] | None = None,
) -> None:  # fmt: skip
    """Write a snapshot; durable on return. Raises OSError."""
    body = b"".join(payload for kind in kinds.values() for payload in kind.payloads)
    head = {
        "format": 1,
        "saved_at_ms": now_ms,
        "sha256": "",
        "identity": identity,
        "last_known": {kind: dict(values) for kind, values in (last_known or {}).items() if values},
        "unreadable_since_ms": {kind: dict(times) for kind, times in (unreadable_since_ms or {}).items() if times},
        "kinds": {
            name: {"revisions": list(kind.revisions), "sizes": [len(payload) for payload in kind.payloads]}
            for name, kind in kinds.items()
        },
    }
    head["sha256"] = _digest(json.dumps(head).encode(), body)
    _keep_previous(path)
    files.replace(path, json.dumps(head).encode() + b"\n" + body)


def _keep_previous(path: Path) -> None:
    """Keep the present file as FILE.1, if FILE.1 is old enough: changes in quick succession are one step back."""
    names = [path.with_name(f"{path.name}.{number}") for number in range(1, PREVIOUS_MAX + 1)]
    with suppress(FileNotFoundError):
        if time.time() - names[0].stat().st_mtime < PREVIOUS_GAP_S:
            return
    for newer, older in reversed(list(pairwise(names))):
        with suppress(FileNotFoundError):
            os.replace(newer, older)
    with suppress(FileNotFoundError):
        os.link(path, names[0])


def _digest(line: bytes, body: bytes) -> str:
    """The digest of head and body: a flipped bit in a size or a revision would give intact bytes a wrong meaning."""
    return hashlib.sha256(line + b"\n" + body).hexdigest()


def mark_current(path: Path) -> None:
    """Note that the snapshot still equals the store."""
    try:
        os.utime(path)
    except OSError as error:
        limited.warning("snapshot=%s: cannot be marked as current: %s", path, error)


def load(path: Path) -> Snapshot | None:
    """The snapshot; None when it is missing, or, with a warning, when it is damaged or cannot be read."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        current_at_ms = path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None
    except OSError as error:
        limited.warning("snapshot=%s: ignored, cannot be read: %s", path, error)
        return None
    try:
        return _parse(head, body, current_at_ms)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        limited.warning("snapshot=%s: ignored, damaged: %s", path, error)
        return None


def _parse(line: bytes, body: bytes, current_at_ms: int) -> Snapshot:
    head = json.loads(line)
    if head["format"] != 1:
        raise ValueError(f"unknown format {head['format']}")
    if head["sha256"] != _digest(line.replace(head["sha256"].encode(), b"", 1), body):
        raise ValueError("the checksum does not match")
    kinds = {}
    at = 0
    for name, kind in head["kinds"].items():
        payloads = []
        for size in kind["sizes"]:
            payloads.append(body[at : at + size])
            at += size
        kinds[name] = Buckets(tuple(kind["revisions"]), tuple(payloads))
    identity = StoreIdentity(*head["identity"]) if head.get("identity") else None
    return Snapshot(kinds, current_at_ms, identity, head.get("last_known", {}), head.get("unreadable_since_ms", {}))
