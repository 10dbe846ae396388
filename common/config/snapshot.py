"""The last configuration that a process saw, kept so that it starts while the store is away.

Line 1: JSON {"format":1,"saved_at_ms","sha256" of the file with these 64 characters left out,"kinds":{kind:{"revisions":[…],"sizes":[…]}}}
Then all kinds' buckets in that order, as in the store. 0600: it holds the applications' secrets. Its modification time is
when the process last knew it to be current.
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
    """Durable when it returns; raises OSError."""
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
    """Of the head as well: a flipped bit in a size or a revision would give the right bytes a wrong meaning."""
    return hashlib.sha256(line + b"\n" + body).hexdigest()


def mark_current(path: Path) -> None:
    """Note that the snapshot still is what the store holds."""
    try:
        os.utime(path)
    except OSError as error:
        log.warning("snapshot=%s: %s", path, error)


def load(path: Path) -> Snapshot | None:
    """The snapshot, or None with a warning when it is damaged or unreadable, without one when there is none."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        current_at_ms = path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("snapshot=%s: ignored, it cannot be read: %s", path, error)
        return None
    try:
        return Snapshot(_parse(head, body), current_at_ms)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("snapshot=%s: ignored, it is damaged: %s", path, error)
        return None


def _parse(line: bytes, body: bytes) -> dict[str, Buckets]:
    head = json.loads(line)
    if head["format"] != 1:
        raise ValueError(f"its format is {head['format']}")
    if head["sha256"] != _digest(line.replace(head["sha256"].encode(), b"", 1), body):
        raise ValueError("checksum does not match")
    kinds = {}
    at = 0
    for name, kind in head["kinds"].items():
        payloads = []
        for size in kind["sizes"]:
            payloads.append(body[at : at + size])
            at += size
        kinds[name] = Buckets(tuple(kind["revisions"]), tuple(payloads))
    return kinds
