"""Flipped bits in every kind of file of a data directory: found by `verify`, never served, and the engine starts or says why not.

PENSTOCK_FLIPS=5000 for more of them, PENSTOCK_SEED for the same ones again.
"""

import logging
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from common.config import snapshot
from engine.env.real import RealEnv
from engine.errors import EngineError, StoreDamagedError
from engine.log import open_log
from engine.log.offline.directory import opened
from engine.log.offline.repair import carry_out, plan
from engine.log.offline.verify import verify
from tests.fault.flipped_log import CONFIG, KINDS, LIVE, Held, KnownLog, look_up, make_names, read_all

FLIPS = int(os.environ.get("PENSTOCK_FLIPS", "160"))
SEED = os.environ.get("PENSTOCK_SEED") or str(time.time_ns())


@pytest.fixture
def known(caplog):
    caplog.set_level(logging.CRITICAL)  # damage is logged as errors, hundreds of times here
    # In memory where that is possible: each flip is a recovery with its syncs, and no power is cut here.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="penstock-flips-", dir=memory) as folder:
        yield KnownLog(Path(folder) / "data", Random(f"log.{SEED}"))


def damage_found(known) -> int:
    """By `verify`; a directory that it refuses to judge counts as found, with the reason."""
    try:
        with opened(known.path) as directory:
            return verify(directory, lambda finding: None).damage
    except EngineError as error:
        assert str(error)
        return 1


def served(known) -> Held | None:
    """All that an engine serves, None when it would not and said why."""
    try:
        log = open_log(RealEnv(), str(known.path), CONFIG)
    except (EngineError, OSError) as error:
        assert len(str(error)) > 20, "an operator must learn what is wrong"
        return None
    try:
        held = read_all(log)
        make_names(log)
        assert {name: look_up(log, *name) for name in held.named} == held.named
        return held
    except StoreDamagedError as error:
        assert "state" in str(error)
        return None
    finally:
        log.close()


def assert_right(known, held: Held, flip) -> None:
    """Nothing that was never written, and no more lost than the damaged bytes."""
    assert {at: data for at, data in held.records.items() if known.held.records.get(at) != data} == {}, flip
    assert len(known.held.records) - len(held.records) <= flip.records_max, flip
    assert held.topics == known.held.topics, flip
    assert held.progress.get(b"group") in known.written, flip
    for name, places in known.held.named.items():
        assert held.named[name] <= places, flip
        assert not (places - held.named[name]) & held.records.keys(), f"not found though it can be read: {flip}"
    if flip.kind != "segment":
        assert held == known.held, flip


def test_no_flipped_bit_is_served_and_every_one_in_live_bytes_is_found(known):
    print(f"seed={SEED}")
    flips, found, refused = Counter(), Counter(), Counter()
    for number in range(FLIPS):
        known.restore()
        flip = known.flip(KINDS[number % len(KINDS)])
        flips[flip.kind] += 1
        damage = damage_found(known)
        # RocksDB does not insist on a table's statistics nor on the end of its manifest: harmless, or the next lines fail.
        assert damage or flip.kind not in LIVE or flip.kind in ("table", "manifest"), f"not found: {flip}"
        found[flip.kind] += damage > 0
        held = served(known)
        if held is None:
            refused[flip.kind] += 1
            list(carry_out(plan(known.path)))
            held = served(known)
        assert held is not None, f"not mended: {flip}"
        assert_right(known, held, flip)
    print(f"flips {dict(flips)}, found {dict(found)}, refused {dict(refused)}")
    assert found["table"] > flips["table"] / 2 and found["manifest"] > flips["manifest"] / 2
    assert sum(refused.values()) < FLIPS / 4, "most damage must be lived with"


def test_an_undamaged_directory_passes_the_same_checks(known):
    """Otherwise everything above could be found for another reason."""
    known.restore()
    assert damage_found(known) == 0
    assert served(known) == known.held


def test_no_flipped_bit_of_a_configuration_snapshot_is_believed(tmp_path, caplog):
    caplog.set_level(logging.CRITICAL)
    chance, path = Random(f"snapshot.{SEED}"), tmp_path / "config.snapshot"
    kinds = {
        name: snapshot.Buckets((3, 14), tuple(b'{"n%d":{"queues":4}}' % at for at in range(2)))
        for name in ("topic", "app")
    }
    snapshot.save(path, kinds, 1_700_000_000_000)
    whole = path.read_bytes()
    for _ in range(FLIPS):
        at, bit = chance.randrange(len(whole)), chance.randrange(8)
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        loaded = snapshot.load(path)
        assert loaded is None or loaded.kinds == kinds, f"seed={SEED}: byte {at} bit {bit}"
