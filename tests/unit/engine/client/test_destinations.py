"""The table of known topics: bounded, and what is in use stays. Native form and twin."""

import random

import pytest

from engine.client import destination as reference

FORMS = [reference]
try:
    from engine.client import _destination

    FORMS.append(_destination)
except ImportError:
    pass


@pytest.fixture(params=FORMS, ids=lambda form: form.__name__.rpartition(".")[2])
def form(request):
    return request.param


def destination(form, number: int):
    return form.Destination(b"m.%d" % number, number + 1, 8, 1, 1 << 20)


def test_a_destination_is_found_by_its_name_until_another_takes_its_place(form):
    table = form.Destinations(10)
    assert table.get(b"m.1") is None
    first, second = destination(form, 1), destination(form, 1)
    table.put(first)
    assert table.get(b"m.1") is first
    table.put(second)
    assert table.get(b"m.1") is second
    assert len(table) == 1


def test_a_full_table_stays_at_its_bound_and_keeps_what_is_asked_for(form):
    table = form.Destinations(100)
    hot = [destination(form, number) for number in range(20)]
    for each in hot:
        table.put(each)
    for number in range(20, 5_000):
        table.put(destination(form, number))
        assert len(table) <= 100
        for each in hot:
            assert table.get(each.name) is each, "used since the last eviction"


def test_any_mix_of_uses_finds_what_was_put_last_or_nothing(form):
    chance = random.Random(5)
    table, model = form.Destinations(50), {}
    for _ in range(20_000):
        made = destination(form, chance.randrange(200))
        if chance.random() < 0.3:
            table.put(made)
            model[made.name] = made
        elif chance.random() < 0.001:
            table.clear()
            model.clear()
        else:
            assert table.get(made.name) in (None, model.get(made.name))
        assert len(table) <= 50


def test_a_table_of_one_holds_the_last(form):
    table = form.Destinations(1)
    for number in range(10):
        made = destination(form, number)
        table.put(made)
        assert table.get(made.name) is made
        assert len(table) == 1
