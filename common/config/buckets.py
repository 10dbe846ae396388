"""The bytes of a bucket and of a kind's index, the same in every store.

Bucket, little-endian:
    0 u32 magic 0x31424350 ("PCB1")
    4 u32 crc32 of all following bytes
    8 u64 revision; incremented with each write of the bucket
   16 zlib: for each entry, by name:  "\\n" name "\\t" version "\\t" JSON
      and a closing "\\n", so that one entry is found by a search for "\\n" name "\\t"
      for each deleted entry, the newest DELETIONS_MAX of the bucket:  "\\n" 0x7f name "\\t" version "\\t" "{}"

Index: "penstock-index 1 " crc32 in hex "\\n" and the JSON list of all buckets' revisions (0: never written). A commit
replaces buckets and index in one step, so a follower finds the changed buckets by the index alone.
An entry's version is the revision of its bucket when it was written, so it is never used twice.
"""

import json
import re
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from common.config.errors import BucketFull, InvalidEntry, StoreDamaged
from common.config.store import Value, Versioned
from common.quoting import quoted, thing

BUCKET_BYTES_MAX = (
    900_000  # ZooKeeper refuses packets from 1,048,575 bytes on; the rest is for index, paths and headers
)
TEXT_BYTES_MAX = 64 << 20  # of an unpacked bucket: a damaged or forged one must not exhaust the memory
VALUE_BYTES_MAX = 64 << 10
MAGIC = 0x31424350
HEADER = struct.Struct("<IIQ")
DELETIONS_MAX = 1_000  # records of deletions that a bucket keeps, some 12 bytes each as stored
DELETED = "\x7f"  # begins the line of a deleted entry; no name contains it
NAME = re.compile(r"[!-~]{1,249}")


def bucket_of(name: str, buckets: int) -> int:
    return zlib.crc32(name.encode(errors="replace")) % buckets  # replace: also for names that cannot be stored


def pack(lines: dict[str, bytes], revision: int, subject: str) -> bytes:
    """Encode a bucket of lines as `entry_line` makes them.

    Raises:
        BucketFull: the result would not fit ZooKeeper; every store rejects it.
    """
    text = b"\n" + b"\n".join(lines[name] for name in sorted(lines)) + b"\n"
    body = revision.to_bytes(8, "little") + zlib.compress(text, 6)
    if len(body) + 8 > BUCKET_BYTES_MAX or len(text) > TEXT_BYTES_MAX:
        raise BucketFull(
            f"{subject}: the change would make it {len(body) + 8:,} bytes, at most {BUCKET_BYTES_MAX:,} fit: "
            "use fewer or smaller definitions, or a family"
        )
    return struct.pack("<II", MAGIC, zlib.crc32(body)) + body


def revision_of(payload: bytes) -> int:
    return HEADER.unpack_from(payload)[2] if payload else 0


def verify(payload: bytes, subject: str) -> bytes:
    """Return the payload if it is empty or an undamaged bucket, else raise StoreDamaged."""
    if payload and (len(payload) < HEADER.size or HEADER.unpack_from(payload)[0] != MAGIC):
        raise StoreDamaged(f"{subject}: damaged, or of another version: wrong magic number")
    if payload and zlib.crc32(payload[8:]) != HEADER.unpack_from(payload)[1]:
        raise StoreDamaged(f"{subject}: damaged: the checksum does not match")
    return payload


def unpack(payload: bytes, subject: str) -> bytes:
    """The text of a bucket; b"\\n" of one that was never written.

    Raises:
        StoreDamaged: magic, checksum or size is wrong.
    """
    if not verify(payload, subject):
        return b"\n"
    inflate = zlib.decompressobj()
    text = inflate.decompress(payload[HEADER.size :], TEXT_BYTES_MAX)
    if not inflate.eof:
        raise StoreDamaged(f"{subject}: damaged: it unpacks to more than {TEXT_BYTES_MAX:,} bytes")
    return text


def all_lines(text: bytes) -> dict[str, bytes]:
    """Lines of entries by name, and of deletions by DELETED and the name."""
    lines = text.strip(b"\n").split(b"\n") if len(text) > 2 else []
    return {line[: line.index(b"\t")].decode(): line for line in lines}


def lines_of(text: bytes) -> dict[str, bytes]:
    return {name: line for name, line in all_lines(text).items() if not name.startswith(DELETED)}


def deletions_of(text: bytes) -> list[str]:
    """Names whose deletion is on record. An entry created again since then has no record."""
    return [name[1:] for name in all_lines(text) if name.startswith(DELETED)]


def is_deleted(text: bytes, name: str) -> bool:
    return f"\n{DELETED}{name}\t".encode() in text


def deletion_line(name: str, version: int) -> bytes:
    return f"{DELETED}{name}\t{version}\t{{}}".encode()


def find(text: bytes, name: str) -> Versioned | None:
    """One entry of a bucket's text, without parsing the others."""
    mark = b"\n" + name.encode() + b"\t"
    at = text.find(mark)
    if at < 0:
        return None
    return parse_line(text[at + 1 : text.index(b"\n", at + 1)])


def entry_line(name: str, version: int, value: Value) -> bytes:
    data = json.dumps(value, separators=(",", ":"), sort_keys=True)  # ASCII, so no raw newline or tab can be in it
    if len(data) > VALUE_BYTES_MAX:
        raise InvalidEntry(
            f"{quoted(name)}: the value has {len(data):,} bytes of JSON: use at most {VALUE_BYTES_MAX:,}"
        )
    return f"{name}\t{version}\t{data}".encode()


def version_of_line(line: bytes) -> int:
    return int(line.split(b"\t", 2)[1])


def parse_line(line: bytes) -> Versioned:
    _, version, data = line.split(b"\t", 2)
    return Versioned(json.loads(data), int(version))


def check_name(kind: str, name: Any) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidEntry(f"{thing(kind, name)}: invalid name: use 1 to 249 printable ASCII characters without spaces")


def pack_index(revisions: Sequence[int]) -> bytes:
    body = json.dumps(list(revisions), separators=(",", ":")).encode()
    return b"penstock-index 1 %08x\n" % zlib.crc32(body) + body


def unpack_index(payload: bytes, subject: str) -> tuple[int, ...]:
    head, _, body = payload.partition(b"\n")
    if head != b"penstock-index 1 %08x" % zlib.crc32(body):
        raise StoreDamaged(f"{subject}: damaged, or of another version: the checksum of the index does not match")
    return tuple(json.loads(body))
