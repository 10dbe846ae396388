"""A blocking link to the broker that leads a group, against brokers of which the test says which one leads."""

import gevent
import pytest

from engine.client.blocking import LeadingLink
from engine.link.codes import NOT_MASTER, OK
from engine.link.errors import LinkError
from engine.link.operations import TOPIC
from engine.link.topic import encode_topics
from tests.services.fake_broker import KEY
from tests.services.fake_member import FakeMember

QUESTION = encode_topics([("orders", 1)])


@pytest.fixture
def members():
    made = [FakeMember("a", leads=True), FakeMember("b")]
    yield made
    for each in made:
        each.stop()


def link_to(members, **options) -> LeadingLink:
    return LeadingLink([each.address for each in members], KEY, "kafka_bridge", **options)


def apart(work, *arguments):
    """Do blocking work in a thread, while the brokers of this process go on."""
    return gevent.get_hub().threadpool.apply(work, arguments)


def test_requests_go_to_the_broker_that_leads(members):
    link = link_to(reversed(members))
    code, answer = apart(link.call, TOPIC, QUESTION)
    assert code == OK and len(answer) > 0
    assert [len(each.asked) for each in members] == [1, 0]
    assert apart(lambda: link.hello.broker) == "a"
    link.close()


def test_after_a_change_of_the_master_the_next_request_goes_to_the_new_one(members):
    link = link_to(members)
    apart(link.call, TOPIC, QUESTION)
    first, second = members
    first.leads = False
    second.lead(2)
    assert apart(link.call, TOPIC, QUESTION)[0] == NOT_MASTER
    assert apart(link.call, TOPIC, QUESTION)[0] == OK
    assert len(second.asked) == 1
    link.close()


def test_of_two_that_say_that_they_lead_the_newer_term_counts(members):
    members[1].lead(2)
    link = link_to(members)
    assert apart(link.call, TOPIC, QUESTION)[0] == OK
    assert [len(each.asked) for each in members] == [0, 1]
    link.close()


def test_a_link_that_breaks_is_an_error_and_the_next_request_opens_another(members):
    link = link_to(members)
    apart(link.call, TOPIC, QUESTION)
    members[0].break_links()
    with pytest.raises(OSError):
        apart(link.call, TOPIC, QUESTION)
    assert apart(link.call, TOPIC, QUESTION)[0] == OK
    link.close()


def test_without_a_broker_that_leads_or_may_be_used_the_reasons_are_told(members):
    members[0].leads = False
    with pytest.raises(LinkError, match=r"it does not lead its group; .*it does not lead its group"):
        apart(link_to(members).call, TOPIC, QUESTION)
    members[0].leads = True
    with pytest.raises(LinkError, match="another log"):
        apart(link_to(members[:1], admits=lambda hello: "it has another log").call, TOPIC, QUESTION)
    assert members[0].asked == []
