"""What `dump` and `stats` show."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.contract import Message
from common.wire.names import find_names
from engine.log.offline.directory import opened
from engine.log.offline.dump import DumpQuery, dump
from engine.log.offline.stats import count


def rows(stopped, **wanted):
    with opened(stopped.path) as directory:
        return list(dump(directory, DumpQuery(**wanted)))


def test_every_batch_is_shown_once_in_order(stopped):
    found = rows(stopped)
    assert [row["position"] for row in found] == sorted(row["position"] for row in found)
    assert sum(row["kind"] == "messages" for row in found) == 400
    assert {row["topic"] for row in found} == {None, "orders", "pay"}


def test_the_filters_and_the_limit_choose_records(stopped):
    found = rows(stopped, topic="pay", queue=0, start=7, limit=5, records=True)
    assert [row["offset"] for row in found] == [7, 8, 9, 10, 11]
    assert {row["topic"] for row in found} == {"pay"} and {row["size"] for row in found} == {7 * 30}
    assert rows(stopped, topic="pay", queue=3) == [] == rows(stopped, topic="nobody")


def test_damage_is_shown_where_it_lies(stopped):
    batch = stopped.batches(1)[3]
    stopped.write(batch.path, batch.at + 60, b"\xff")
    damaged = [row for row in rows(stopped, topic="pay") if "damage" in row]
    assert [(row["position"], row["bytes"]) for row in damaged] == [(batch.position, batch.size + 7 & ~7)]


def test_names_are_known_without_a_view(stopped):
    import shutil

    shutil.rmtree(stopped.path / "state")
    assert {row["topic"] for row in rows(stopped)} == {None, "orders", "pay"}


def test_stats_add_up_to_the_dump(stopped):
    with opened(stopped.path) as directory:
        stats = count(directory)
    found = rows(stopped)
    assert (stats.batches, stats.records, stats.bytes) == (
        len(found), sum(row["records"] for row in found), sum(row["size"] for row in found),
    )  # fmt: skip
    assert stats.topics[2]["records"] == sum(row["records"] for row in found if row["topic"] == "pay")
    assert stats.damage == 0


@given(
    st.text(max_size=20),
    st.text(max_size=20),
    st.binary(max_size=50),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5)),
)
def test_id_and_key_are_read_from_any_message(id_, key, body, properties):
    message = Message(topic="t", body=body, key=key, id=id_, tag="x", properties=properties, delay_ms=5)
    assert find_names(packed(message)) == (id_.encode(), key.encode())


def packed(message):
    from thriftpy2.protocol.binary import TBinaryProtocol
    from thriftpy2.transport import TMemoryBuffer

    buffer = TMemoryBuffer()
    message.write(TBinaryProtocol(buffer))
    return buffer.getvalue()


@given(st.binary(max_size=200))
def test_what_is_no_message_has_no_names_and_no_error(data):
    find_names(data)


@pytest.mark.parametrize("records", [False, True])
def test_rows_are_json(stopped, records):
    import json

    assert json.loads(json.dumps(rows(stopped, records=records)))
