"""Snapshots: the last configuration that a process saw, for a start while the store is unavailable.

Line 1: JSON {"format":1,"saved_at_ms","sha256" of the file with these 64 characters left out,
"kinds":{kind:{"revisions":[…],"sizes":[…]}}}. Then all kinds' buckets in that order, as in the store. Mode 0600,
because it holds the applications' secrets. Its modification time is the last time when the process knew it to be
current.
"""

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import NamedTuple

from common.config import files

log = logging.getLogger("penstock.config")


class Buckets(NamedTuple):
    """One kind as followed: payloads are at the index's revisions or newer."""

    revisions: tuple[int, ...]
    payloads: tuple[bytes, ...]


class Snapshot(NamedTuple):
    kinds: dict[str, Buckets]
    current_at_ms: int


def save(path: Path, kinds: dict[str, Buckets], now_ms: int) -> None:
    """Write a snapshot; durable on return. Raises OSError."""
    body = b"".join(payload for kind in kinds.values() for payload in kind.payloads)
    head = {
        "format": 1,
        "saved_at_ms": now_ms,
        "sha256": "",
        "kinds": {
            name: {"revisions": list(kind.revisions), "sizes": [len(payload) for payload in kind.payloads]}
            for name, kind in kinds.items()
        },
    }
    head["sha256"] = _digest(json.dumps(head).encode(), body)
    files.replace(path, json.dumps(head).encode() + b"\n" + body)


def _digest(line: bytes, body: bytes) -> str:
    """The digest of head and body: a flipped bit in a size or a revision would give intact bytes a wrong meaning."""
    return hashlib.sha256(line + b"\n" + body).hexdigest()


def mark_current(path: Path) -> None:
    """Note that the snapshot still equals the store."""
    try:
        os.utime(path)
    except OSError as error:
        log.warning("snapshot=%s: cannot be marked as current: %s", path, error)


def load(path: Path) -> Snapshot | None:
    """The snapshot; None when it is missing, or, with a warning, when it is damaged or cannot be read."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        current_at_ms = path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("snapshot=%s: ignored, cannot be read: %s", path, error)
        return None
    try:
        return Snapshot(_parse(head, body), current_at_ms)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("snapshot=%s: ignored, damaged: %s", path, error)
        return None


def _parse(line: bytes, body: bytes) -> dict[str, Buckets]:
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
    return kinds
