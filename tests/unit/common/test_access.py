"""Why an application may send or pull: by the decision that the proxies make."""

import pytest

from common.admin import access
from common.config.definitions import ApplicationDefinition

KEY = {"key_id": "k-1", "secret": "s" * 32, "created_at_ms": 0}


def application(grants=(), pulls=(), keys=(KEY,)):
    value = {
        "keys": list(keys),
        "grants": [list(each) for each in grants],
        "pull_grants": [list(each) for each in pulls],
    }
    return ApplicationDefinition.from_value("shop", value)


def answers(found):
    return [(each.is_allowed, each.grant) for each in found]


def test_the_name_itself_and_then_the_longest_prefix_is_the_grant():
    app = application([("send", "or*"), ("send", "orders*"), ("send", "orders.it")])
    assert answers(access.of_send(app, "orders.it"))[1] == (True, "orders.it")
    assert answers(access.of_send(app, "orders.de"))[1] == (True, "orders*")
    assert answers(access.of_send(app, "ordinary"))[1] == (True, "or*")


def test_what_is_missing_has_the_options_that_grant_it():
    app = application(pulls=[("topic", "orders")])
    topic, group = access.of_pull(app, "orders", "readers")[1:]
    assert topic.is_allowed and not group.is_allowed
    assert group.remedy == "--pull-group 'readers'"
    assert access.of_send(app, "orders")[1].remedy == "--send 'orders'"


def test_dead_letters_need_a_grant_of_their_own():
    app = application(pulls=[("topic", "*"), ("group", "*")])
    assert not access.of_pull(app, "_dlq.readers", "readers")[1].is_allowed
    app = application(pulls=[("dead_letters", "read*"), ("group", "x")])
    assert answers(access.of_pull(app, "_dlq.readers", None))[1] == (True, "read*")
    assert not access.of_send(application([("send", "*")]), "_dlq.readers")[1].is_allowed


def test_without_a_key_nothing_is_allowed():
    assert not access.of_send(application([("send", "*")], keys=()), "orders")[0].is_allowed


@pytest.mark.parametrize("name", ["orders", "order", "o", "payments", "orders.x"])
def test_the_answer_and_the_grant_never_contradict_each_other(name):
    app = application([("send", "orders"), ("send", "orders.*")])
    check = access.of_send(app, name)[1]
    assert check.is_allowed == bool(check.grant) == (not check.remedy)
