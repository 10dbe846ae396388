"""Sifting stored records: both forms decide alike, and stop where the pull is full."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.filter.expression import read_filter
from common.filter.native import Filter
from engine.filter import native
from engine.filter import select as reference
from engine.log.format import pack_record
from tests.unit.common.filter.stored import stored

TAKES_A = read_filter("kind = 'a'").formula


def records_of(kinds: str, sizes: list[int] | None = None) -> list[bytes]:
    return [
        pack_record(
            stored({"kind": kind}, body=b"x" * (sizes or [0])[at % len(sizes or [0])]), bytes(16) if at % 3 else b""
        )
        for at, kind in enumerate(kinds)
    ]


@settings(max_examples=300, deadline=None)
@given(
    st.text("ab", max_size=20),
    st.lists(st.integers(0, 300), min_size=1, max_size=5),
    st.integers(1, 20),
    st.integers(0, 2_000),
    st.booleans(),
)
def test_both_forms_decide_alike_and_runs_hold_what_passed(kinds, sizes, most, bytes_max, some):
    records = records_of(kinds, sizes)
    whole = b"head" + b"".join(records)
    answer = reference.select(Filter(TAKES_A), whole, 4, most, bytes_max, some)
    assert native.select(Filter(TAKES_A), whole, 4, most, bytes_max, some) == answer
    decided, runs = answer
    passed = [index for first, count, *_ in runs for index in range(first, first + count)]
    assert passed == [index for index, kind in enumerate(kinds[:decided]) if kind == "a"]
    assert b"".join(whole[start:end] for *_, start, end in runs) == b"".join(records[index] for index in passed)
    assert len(passed) <= most
    taken = sum(len(records[index]) for index in passed)
    assert taken <= bytes_max or (len(passed) == 1 and not some)
    if decided < len(kinds) and len(passed) < most:
        assert kinds[decided] == "a" and taken + len(records[decided]) > bytes_max


@pytest.mark.parametrize("form", [native.FORM, native.REFERENCE], ids=lambda form: form.name)
def test_nothing_to_sift_is_nothing(form):
    assert form.select(Filter(TAKES_A), b"", 0, 1, 100, False) == (0, [])
