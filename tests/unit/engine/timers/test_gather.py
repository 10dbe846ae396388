"""Due timers as batches: both forms give the same, from the files of a simulated machine and from real ones."""

import pytest

from common.keyhash import queue_of
from engine.env.real import RealEnv
from engine.link.timer import Timer
from engine.log import open_log
from engine.log.format import BATCH_HEADER, FLAG_CHECK_IDS, KIND_FIRED
from engine.timers import gather as gather_pure
from engine.timers import native
from engine.timers.timers import Timers
from tests.unit.engine.timers.rig import Rig

pytestmark = pytest.mark.skipif(not native.NATIVE, reason="the native form is not built")
MEBIBYTE = 1 << 20


class RealRig(Rig):
    """The same on real files, so that the native form reads them by itself."""

    def __init__(self, directory) -> None:
        self._directory = str(directory)
        super().__init__(1 << 20)

    def open(self) -> None:
        self.log = open_log(RealEnv(), self._directory, self.config)
        self.timers = Timers(self.log, self.env.now_ms)


@pytest.fixture(params=["simulated", "real"])
def rig(request, tmp_path):
    made = Rig() if request.param == "simulated" else RealRig(tmp_path / "engine")
    yield made
    if request.param == "real":
        made.log.close()


def both(rig, entries, bytes_max=MEBIBYTE, turn=1):
    """The one answer of both forms."""
    log = rig.log.for_timers
    found = native.gather(log, entries, bytes_max, turn)
    assert found == gather_pure.gather(log, entries, bytes_max, turn)
    return found


def entries(rig):
    return sorted(rig.timers.table.scan(0, 10_000)[0])


def test_timers_of_many_queues_sizes_and_kinds_are_laid_out_alike(rig):
    for number in range(300):
        options = [{}, {"queue": number % 3}, {"gap_ms": 100, "times": 2}, {"id_window_ms": 1000}][number % 4]
        rig.add(f"m{number}", rig.now_ms + 10, body=bytes(number * 7 % 3000), **options)
    stored = entries(rig)
    for turn in range(4):
        assert both(rig, stored, turn=turn).taken == 300
    for some in (stored[::-1], stored[::7]):
        assert both(rig, some).taken == len(some)
    found = both(rig, stored)
    assert sorted(number for group in found.groups for number in group) == list(range(300))
    assert sorted(found.looping) == list(range(2, 300, 4)) and all(
        isinstance(each, Timer) for each in found.looping.values()
    )


def test_a_checked_message_is_alone_in_its_batch(rig):
    for number in range(3):
        rig.add(f"m{number}", rig.now_ms + 10, queue=1, id_window_ms=5000 if number else 0)
    found, at, heads = both(rig, entries(rig)), 0, []
    for _ in found.groups:
        _, size, _, kind, flags, _, topic_id, queue, count, window_ms, _, _ = BATCH_HEADER.unpack_from(
            found.batches, at
        )
        heads.append((kind, flags, topic_id, queue, count, window_ms))
        at += (size + 7) & ~7
    plain, checked = (KIND_FIRED, 0, 1, 1, 1, 0), (KIND_FIRED, FLAG_CHECK_IDS, 1, 1, 1, 5000)
    assert heads == [plain, checked, checked]


@pytest.mark.parametrize("bytes_max", [1, 500, 501, 2000, 70_000])
def test_the_bound_of_bytes_leaves_the_rest_but_takes_one_always(rig, bytes_max):
    for number in range(40):
        rig.add(f"m{number}", rig.now_ms + 10, body=bytes(100 * number))
    found = both(rig, entries(rig), bytes_max)
    assert found.taken == 1 or found.size <= bytes_max
    assert found.taken >= 1 and sum(len(group) for group in found.groups) == found.taken


def test_damage_and_places_that_hold_nothing_are_told_by_number(rig):
    for number in range(5):
        rig.add(f"m{number}", rig.now_ms + 10)
    stored = entries(rig)
    rig.log.for_timers.file_of(stored[1][0]).write_at(b"\xff\xff", stored[1][1] + 30)
    rig.log.for_timers.file_of(stored[3][0]).write_at(b"\xff\xff\xff\x7f", stored[3][1])
    elsewhere = [(1 << 40, 64, 0, 0), (stored[0][0], 30_000, 0, 0), (stored[0][0], 1 << 31, 0, 0)]
    found = both(rig, stored + elsewhere)
    assert (found.damaged, found.unread, found.taken) == ([1, 3, 5, 6, 7], [], 8)


def with_key(timer: Timer, key: str) -> Timer:
    """The same message with a key, as the producer proxy places it among three queues."""
    field = b"\x0b\x00\x03" + len(key).to_bytes(4, "big") + key.encode()
    return timer._replace(queue=queue_of(key.encode(), 3), record=timer.record[:-1] + field + b"\0")


def queues_of(found) -> dict[int, int]:
    """Number of the entry -> queue of its batch."""
    at, queues = 0, {}
    for group in found.groups:
        size, queue, count = (BATCH_HEADER.unpack_from(found.batches, at)[number] for number in (1, 7, 8))
        assert count == len(group)
        queues.update(dict.fromkeys(group, queue))
        at += size + 7 & ~7
    return queues


@pytest.mark.parametrize("owns_all", [True, False])
def test_a_keys_message_is_laid_out_for_the_queue_that_its_key_has_today(rig, owns_all):
    keys = [f"k{number}" for number in range(60)]
    timers = [with_key(rig.timer(key, rig.now_ms + 10), key) for key in keys]
    other = with_key(rig.timer("placed", rig.now_ms + 10), "k0")
    elsewhere = next(queue for queue in range(3) if queue not in (queue_of(b"k0", 3), queue_of(b"k0", 5)))
    timers.append(other._replace(queue=elsewhere))  # by another rule than the key's
    rig.timers.add(b"".join(each.pack() for each in timers), len(timers))
    stored = entries(rig)
    assert queues_of(both(rig, stored)) == {number: each.queue for number, each in enumerate(timers)}

    def nearest(topic, queue, queues):
        return queue if owns_all or queue < 3 else 0

    rig.log.create_topics([("orders", 5)])
    rig.log.create_topics([("orders", 16)])
    rig.timers = Timers(rig.log, rig.env.now_ms, nearest)  # as after a restart: nothing but the log tells of the growth
    today = {number: queue_of(key.encode(), 16) for number, key in enumerate(keys)} | {60: timers[60].queue}
    if not owns_all:
        today = {number: queue if queue < 3 else timers[number].queue for number, queue in today.items()}
    assert max(today.values()) > 2 if owns_all else set(today.values()) == {0, 1, 2}
    assert queues_of(both(rig, stored)) == today
