import pytest

from common.names import is_name
from common.wire import valid_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "a" * 249])
def test_names_by_kafkas_rule_are_taken_as_text_and_as_bytes(name):
    assert is_name(name)
    assert valid_name(name.encode())


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a/b", "a\n", "ä", "a b", "%2e", "１"])
def test_other_names_are_refused_as_text_and_as_bytes(name):
    assert not is_name(name)
    assert not valid_name(name.encode())
