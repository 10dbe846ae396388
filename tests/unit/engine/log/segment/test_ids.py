"""Messages that clients gave ids: the second one within the window is not stored, and is told where the first one lies."""

import errno
import os
import struct

import pytest
from checked import APPENDED, DUPLICATE, INVALID, OK, batch, check, message, send
from forms import forms, load
from hypothesis import given, settings
from hypothesis import strategies as st
from machine import NOW, Machine

from engine.env.simulated import SimulatedEnv
from engine.errors import DiskFullError
from engine.link.claim import Claim, claim_batch
from engine.link.codes import CLAIMED


def test_a_second_copy_is_not_stored_and_is_told_the_queue_and_offset_of_the_first(any_machine):
    m = any_machine
    m.append(1, 2, b"x", b"y")
    assert send(m, batch(m, 2, b"a")) == [(OK, 0, 2)]
    end = m.log.end_position
    assert send(m, batch(m, 2, b"a")) == [(DUPLICATE, 2, 2)]
    assert send(m, batch(m, 0, b"a")) == [(DUPLICATE, 2, 2)]
    assert m.log.end_position == end
    assert m.bodies(1, 2) == [b"x", b"y", message(b"a")]
    assert m.bodies(1, 0) == []


def test_a_claim_refuses_other_queues_and_is_no_copy_of_the_message_that_it_was_made_for(any_machine):
    m = any_machine
    m.log.for_timers.append(claim_batch(1, Claim("t", 4, "a", 2, 10_000), 2), 1)
    assert send(m, batch(m, 0, b"a")) == [(CLAIMED, 2, 0)]
    assert send(m, batch(m, 2, b"a")) == [(OK, 0, 0)]
    assert send(m, batch(m, 2, b"a"), batch(m, 0, b"a")) == [(DUPLICATE, 2, 0), (DUPLICATE, 2, 0)]


def test_ids_are_a_topics_own_and_compared_as_a_whole(machine):
    m = machine
    assert send(m, batch(m, 0, b"a"), batch(m, 0, b"a", topic_id=2), batch(m, 0, b"ab"), batch(m, 0, b"a\0")) == [
        (OK, 0, 0),
        (OK, 0, 0),
        (OK, 0, 1),
        (OK, 0, 2),
    ]


def test_copies_in_one_append_and_in_one_turn_find_the_first_that_is_not_written_yet(machine):
    m = machine
    assert send(m, batch(m, 3, b"a"), batch(m, 1, b"a"), batch(m, 3, b"b")) == [
        (OK, 0, 0),
        (DUPLICATE, 3, 0),
        (OK, 0, 1),
    ]
    appender = m.log.appender
    assert appender.append_results(batch(m, 0, b"c"), 1, NOW, staged=True) == APPENDED.pack(OK, 0, 0)
    assert appender.append_results(batch(m, 1, b"c"), 1, NOW, staged=True) == APPENDED.pack(DUPLICATE, 0, 0)
    appender.commit_staged()
    assert m.bodies(1, 0) == [message(b"c")]


def test_an_id_is_forgotten_when_its_window_has_passed_to_the_second(machine):
    m = machine
    m.env.clock_ms = NOW + 500
    send(m, batch(m, 0, b"a", window_ms=10_000), batch(m, 0, b"b", window_ms=1))
    m.env.clock_ms = NOW + 999
    assert send(m, batch(m, 0, b"b")) == [(DUPLICATE, 0, 1)]
    m.env.clock_ms = NOW + 10_999
    assert send(m, batch(m, 0, b"a")) == [(DUPLICATE, 0, 0)]
    m.env.clock_ms = NOW + 11_000
    assert send(m, batch(m, 0, b"b"), batch(m, 0, b"a")) == [(OK, 0, 2), (OK, 0, 3)]
    m.env.clock_ms = NOW + 11_001
    assert send(m, batch(m, 0, b"a")) == [(DUPLICATE, 0, 3)]


def test_what_is_not_checked_is_stored_again_and_not_remembered(machine):
    m = machine
    plain = m.batch(1, 0, [message(b"a")])
    assert send(m, plain, plain) == [(OK, 0, 0), (OK, 0, 1)]
    assert send(m, batch(m, 0, b"a"), plain) == [(OK, 0, 2), (OK, 0, 3)]
    assert m.log.appender.ids.count == 1


def test_an_assigned_id_is_compared_as_it_is_shown(machine):
    m, id16 = machine, bytes(range(16))
    assigned = m.form.format.pack_batch(0, 1, 0, [m.form.format.pack_record(b"\0", id16)])
    assert send(m, check(assigned)) == [(OK, 0, 0)]
    assert send(m, batch(m, 0, id16.hex().encode())) == [(DUPLICATE, 0, 0)]


@pytest.mark.parametrize(
    "made",
    [
        lambda m: batch(m, 0, b"a", window_ms=0),
        lambda m: check(m.batch(1, 0, [message(b"a"), message(b"b")])),
        lambda m: check(m.batch(1, 0, [b"\0"])),
        lambda m: check(m.batch(1, 0, [b"no message"])),
        lambda m: check(m.batch(1, 0, [b"\x0b\x00\x06\x00\x00\x00\x09short"])),
        lambda m: batch(m, 0, b"a")[:11] + b"\2" + batch(m, 0, b"a")[12:],
    ],
)
def test_a_batch_to_be_checked_has_one_message_with_an_id_and_a_window(machine, made):
    assert send(machine, made(machine)) == [(INVALID, 0, 0)]
    assert machine.log.appender.ids.count == 0


def test_a_refused_write_forgets_the_ids_that_came_with_it(machine):
    m = machine
    send(m, batch(m, 0, b"old"))
    m.env.failing["write"] = errno.ENOSPC
    with pytest.raises(DiskFullError):
        send(m, batch(m, 0, b"a"), batch(m, 1, b"b"))
    m.env.failing.clear()
    assert send(m, batch(m, 2, b"a"), batch(m, 2, b"b"), batch(m, 2, b"old")) == [
        (OK, 0, 0),
        (OK, 0, 1),
        (DUPLICATE, 0, 0),
    ]


def test_ids_come_back_with_the_log_after_a_kill_a_stop_and_the_loss_of_every_side_file(machine):
    m = machine
    for number in range(200):  # over several segments
        assert send(m, batch(m, number % 4, b"id-%d" % number, body=bytes(200)))[0][0] == OK
    assert any(name.endswith(".dup") for name in m.env.list("/data/log"))
    places = {number: (number % 4, number // 4) for number in range(200)}

    def all_known() -> bool:
        answers = [send(m, batch(m, 0, b"id-%d" % number))[0] for number in range(200)]
        return answers == [(DUPLICATE, *places[number]) for number in range(200)]

    m.kill()
    assert all_known()
    m.reopen()
    assert all_known()
    for gone in ([".dup"], [".dup", ".idx"]):
        m.close()
        for path in [path for path in m.env.files if path.endswith(tuple(gone))]:
            del m.env.files[path]
        m.open()
        assert all_known()
        assert any(name.endswith(".dup") for name in m.env.list("/data/log"))
    m.close()
    m.env.stores.clear()
    m.open()
    assert all_known()


def test_a_damaged_file_of_ids_is_made_again_wherever_the_damage_is(machine):
    m = machine
    for number in range(40):
        send(m, batch(m, 0, b"id-%d" % number, body=bytes(250)))
    m.close()
    path = m.file(".dup", 0)
    for at in range(0, len(m.env.files[path].seen), 7):
        good = bytes(m.env.files[path].seen)
        m.damage(path, at, bytes([good[at] ^ 1]))
        m.open()
        assert send(m, batch(m, 0, b"id-0"), batch(m, 0, b"id-15")) == [(DUPLICATE, 0, 0), (DUPLICATE, 0, 15)]
        m.close()
        assert bytes(m.env.files[path].seen) == good


def test_a_segment_without_checked_ids_has_no_file_of_them(machine):
    m = machine
    for _ in range(40):
        m.append(1, 0, message(b"a", bytes(400)))
    m.close()
    assert [name for name in m.env.list("/data/log") if name.endswith(".idx")]
    assert not [name for name in m.env.list("/data/log") if name.endswith(".dup")]


def window(form, bytes_max: int):
    return form.native.IdWindow(b"k" * 16, bytes_max)


def entries(first: int, count: int, expires_s: int) -> bytes:
    entry = struct.Struct("<16sQII")
    return b"".join(
        entry.pack(struct.pack("<QQ", number * 0x9E3779B97F4A7C15 % (1 << 64), number), number, number % 8, expires_s)
        for number in range(first, first + count)
    )


def test_the_window_keeps_to_its_memory_and_forgets_the_oldest_ids_first(form):
    ids = window(form, 1 << 20)
    for first in range(0, 100_000, 1000):
        ids.load(entries(first, 1000, 2_000_000_000), NOW)
        assert ids.size_bytes <= 1 << 20
    assert ids.count + ids.forgotten == 100_000
    assert 0.6 * ids.capacity < ids.count <= ids.capacity


def test_tables_whose_ids_are_all_past_their_window_go_without_being_missed(form):
    ids = window(form, 4 << 20)
    second = NOW // 1000
    for step in range(100):
        ids.load(entries(step * 1000, 1000, second + step + 5), NOW + step * 1000)
    assert ids.forgotten == 0
    assert ids.count < 20_000


def test_both_forms_hash_alike_and_as_the_reference_of_siphash():
    from common.siphash import siphash

    key = bytes(range(16))
    assert siphash(key, b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert siphash(key, b"\0").hex() == "da87c1d86b99af44347659119b22fc45"
    native = pytest.importorskip("engine.log.segment._ids")
    for size in range(80):
        data = os.urandom(size)
        assert native.siphash(key, data) == siphash(key, data)


SENDS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 3), st.sampled_from([1000, 7000, 60_000])), max_size=5)
STEP = st.one_of(
    st.tuples(st.just("send"), SENDS),
    st.tuples(st.just("wait"), st.integers(0, 9000)),
    st.tuples(st.sampled_from(["kill", "crash", "reopen", "lose"]), st.none()),
)


@pytest.mark.parametrize("name", forms())
@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEP, max_size=40))
def test_any_order_of_sends_waits_and_restarts_answers_as_a_dictionary_does(name, steps):
    m = Machine(load(name), SimulatedEnv(), "/data", segment_bytes=4096)
    m.durable()  # the topics
    first: dict[int, tuple[int, int, int]] = {}
    ends = [0, 0, 0, 0]
    for what, given_ in steps:
        if what == "send":
            wanted = []
            for number, queue, window_ms in given_:
                known = first.get(number)
                if known is not None and known[2] > m.env.clock_ms // 1000:
                    wanted.append((DUPLICATE, *known[:2]))
                    continue
                wanted.append((OK, 0, ends[queue]))
                first[number] = (queue, ends[queue], (m.env.clock_ms + window_ms + 999) // 1000)
                ends[queue] += 1
            made = [
                batch(m, queue, b"id%d" % number, window_ms, body=bytes(300)) for number, queue, window_ms in given_
            ]
            assert send(m, *made, now_ms=m.env.clock_ms) == wanted
            assert m.durable()
        elif what == "wait":
            m.env.clock_ms += given_
        elif what == "lose":
            m.close()
            for path in [path for path in m.env.files if path.endswith((".dup", ".idx"))]:
                del m.env.files[path]
            m.open()
        else:
            getattr(m, what)()
    m.close()
