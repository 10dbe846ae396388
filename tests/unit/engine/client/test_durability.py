"""The table of durability classes: complete, and the same for native code as for Python."""

import re
from pathlib import Path

import pytest

from common.config.definitions import DURABILITIES
from common.contract import Durability
from engine.client.append import AppendClient, Destination
from engine.client.durability import CLASSES, LANES, lane_of, number_of

PXD = Path(__file__).parents[4] / "engine" / "client" / "_durability.pxd"


def test_every_class_of_the_configuration_and_of_the_contract_has_one_row():
    assert tuple(each.name for each in CLASSES) == DURABILITIES
    assert [each.number for each in CLASSES] == [1, 2, 3, 4]
    for each in CLASSES:
        assert getattr(Durability, each.name.upper()) == each.number
        assert number_of(each.name) == each.number and lane_of(each.number) == each.lane


def test_lanes_are_numbered_by_their_row_and_each_serves_the_class_that_it_asks_for():
    assert [row.number for row in LANES] == list(range(len(LANES)))
    assert {each.lane for each in CLASSES} == {row.number for row in LANES}
    for row in LANES:
        assert lane_of(row.durability) == row.number


def test_native_code_has_as_many_lanes_as_the_table():
    assert int(re.search(r"LANE_COUNT = (\d+)", PXD.read_text())[1]) == len(LANES)


def test_a_client_has_a_lane_per_row():
    client = AppendClient(("127.0.0.1", 1), b"k" * 32)
    assert [lane.number for lane in client.lanes] == [row.number for row in LANES]
    assert [lane.durability for lane in client.lanes] == [row.durability for row in LANES]
    client.close()


@pytest.mark.parametrize("durability", [0, len(CLASSES) + 1])
def test_a_destination_of_no_class_is_refused(durability):
    with pytest.raises(ValueError, match=rf"durability class {durability}: use 1 to 4"):
        Destination(b"orders", 1, 4, durability, 1024)
