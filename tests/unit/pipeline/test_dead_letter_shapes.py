"""Shapes of bodies, classes of reasons, and the commands of a redrive plan."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.dead_letters.classes import DeadLetterClass, DeadLetterClasses
from pipeline.dead_letters.redrive import redrive_plan, script
from pipeline.dead_letters.shapes import SHAPE_CHARS_MAX, literal_of, reason_class, shape_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda each: st.lists(each, max_size=5) | st.dictionaries(st.text(max_size=8), each, max_size=5),
    max_leaves=30,
)


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (None, "empty"), (b"", "empty"), (b"plain words", "text"), (b"\xff\x00", "binary"), (b"17", "number"),
        (b'{"b": [1, "x", 2.5], "a": true}', "{a: boolean, b: [number | string]}"),
        (b'{"user 12": {"n": 1}, "user 7": {"n": "x"}}', "{user #: {n: number} | {n: string}}"),
        (b"[" * 100_000, "nested too deep"),
        (json.dumps([[[[[[[1]]]]]]]).encode(), "[[[[[[…]]]]]]"),
    ],
)  # fmt: skip
def test_the_shape_of_a_body(body, shape):
    assert shape_of(body) == shape


@given(VALUES)
def test_a_shape_does_not_depend_on_the_order_of_names_and_is_bounded(value):
    shape = shape_of(json.dumps(value).encode())
    assert len(shape) <= SHAPE_CHARS_MAX
    if isinstance(value, dict):
        assert shape_of(json.dumps(dict(reversed(value.items()))).encode()) == shape


@pytest.mark.parametrize(
    ("reason", "expected", "literal"),
    [
        (None, "", ""), ("no stock", "no stock", "no stock"),
        ("timeout after 1,500 ms at 10.0.0.7:8080", "timeout after # ms at #", "timeout after"),
        ("order 6f1d3c1e-2f1a-4b3c-9d2e-0a1b2c3d4e5f: refused", "order #: refused", ": refused"),
        ("object at 0x7f3a is None", "object at # is None", "object at"),
        ("decade of facade", "decade of facade", "decade of facade"),
    ],
)  # fmt: skip
def test_the_class_of_a_reason_and_its_literal_part(reason, expected, literal):
    assert reason_class(reason) == expected
    assert literal_of(expected) == literal
    assert literal in (reason or "")


def letters(reason, shape, count, cause="rejected", topic="orders"):
    return DeadLetterClass(cause, reason, topic, shape, count, count, 0, 1, 3, [])


def test_classes_that_one_command_takes_share_it_and_others_that_it_takes_are_told():
    classes = [
        letters("no stock", "text", 5),
        letters("no stock", "{a: number}", 3),
        letters("no stock in #", "text", 2),
    ]
    classes += [letters("", "text", 4, cause="attempts"), letters("it's `rm -rf`", "text", 1, topic="t")]
    steps = redrive_plan(DeadLetterClasses("readers", 15, 5, classes), 77)
    assert [(each.takes, each.also_takes, each.letters) for each in steps] == [
        ([1, 2], [3], 10), ([3], [], 2), ([4], [], 4), ([5], [], 1),
    ]  # fmt: skip
    assert steps[0].command == (
        "penstock group dead-letters redrive readers --cause rejected --topic orders --reason 'no stock' --until-ms 77"
    )
    assert "--reason" not in steps[2].command
    text = script("readers", classes, steps)
    assert all(line.startswith("#") or line in ("", "set -e") for line in text.splitlines())
