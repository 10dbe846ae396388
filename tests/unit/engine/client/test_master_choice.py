"""Which broker of a group is used, from what the brokers say."""

from hypothesis import given
from hypothesis import strategies as st

from engine.client.dial import Hello
from engine.client.master_choice import MasterChoice


def hello(leads: bool, term: int) -> Hello:
    return Hello("aa", "g", leads=leads, term=term)


def test_the_broker_that_leads_is_used():
    choice = MasterChoice()
    assert not choice.greeted(0, hello(False, 3)) and choice.master is None
    assert choice.greeted(1, hello(True, 3)) and choice.master == 1


def test_a_broker_that_leads_with_a_greater_term_replaces_the_present_one_at_once():
    choice = MasterChoice()
    choice.greeted(0, hello(True, 3))
    assert choice.greeted(1, hello(True, 4)) and choice.master == 1
    assert not choice.ended(0) and choice.master == 1


def test_a_broker_that_leads_with_a_smaller_term_than_was_told_before_is_not_used():
    choice = MasterChoice()
    choice.greeted(0, hello(True, 3))
    assert choice.ended(0)
    assert not choice.greeted(1, hello(False, 4))
    assert not choice.greeted(0, hello(True, 3)) and choice.master is None
    assert choice.greeted(1, hello(True, 4)) and choice.master == 1


def test_a_broker_that_leads_with_a_smaller_term_than_was_told_has_to_be_greeted_again():
    choice = MasterChoice()
    choice.greeted(1, hello(False, 4))
    assert choice.is_old(hello(True, 3))
    assert not choice.is_old(hello(True, 4)) and not choice.is_old(hello(False, 3))


def test_the_present_master_stays_until_its_link_ends():
    choice = MasterChoice()
    choice.greeted(0, hello(True, 3))
    choice.greeted(1, hello(False, 4))
    assert choice.master == 0, "its link is still open, and no other leads"
    assert not choice.greeted(2, hello(True, 3)), "of two that say so, the first one"
    assert choice.ended(0) and choice.master is None


def test_the_same_broker_is_a_new_master_after_its_link_has_ended():
    choice = MasterChoice()
    choice.greeted(0, hello(True, 0))
    assert choice.ended(0)
    assert choice.greeted(0, hello(True, 0)) and choice.master == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.one_of(st.none(), st.tuples(st.booleans(), st.integers(0, 5))))))
def test_the_master_has_an_open_link_leads_and_has_the_greatest_term_of_those_that_do(events):
    choice, links, told = MasterChoice(), {}, 0
    for broker, said in events:
        if said is None:
            choice.ended(broker)
            links.pop(broker, None)
        else:
            choice.ended(broker)  # a link that is open is not greeted again
            choice.greeted(broker, hello(*said))
            links[broker] = said
            told = max(told, said[1])
        leading = {each: term for each, (leads, term) in links.items() if leads}
        if choice.master is not None:
            assert choice.master in leading
        if told in leading.values():
            assert choice.master is not None and leading[choice.master] == told
