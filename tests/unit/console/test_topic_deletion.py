"""A topic is deleted on a page, by the function behind the command, where its name was typed."""

from tests.unit.console.consoles import text_of


def make(console):
    made = console.as_role("owner").ask(name="orders")
    operator = console.as_role("operator")
    operator.post(f"/requests/{made}/approve", version=1)
    return operator, console.store.get("topic", "orders").version


def test_a_typed_name_deletes_the_topic_and_forgets_its_owner(console):
    operator, version = make(console)
    assert "Type the topic's name" in text_of(operator.get("/topics/orders/delete"))
    assert (
        operator.post("/topics/orders/delete", version=version, typed="orders").location
        == "/topics?said=topic_deletion.delete"
    )
    assert console.store.get("topic", "orders") is None and console.parts.requests.owner_of("orders") is None
    assert {row["action"] for row in console.parts.log.latest("topic orders")} >= {"delete topic", "forget owner"}


def test_another_name_deletes_nothing(console):
    operator, version = make(console)
    answer = operator.post("/topics/orders/delete", version=version, typed="order")
    assert answer.status_code == 422 and "Nothing was deleted" in text_of(answer)
    assert console.store.get("topic", "orders") is not None


def test_a_topic_that_was_changed_meanwhile_is_not_deleted(console):
    operator, version = make(console)
    assert operator.post("/topics/orders/delete", version=version + 1, typed="orders").status_code == 409
    assert console.store.get("topic", "orders") is not None


def test_a_topic_in_a_plan_is_refused_with_the_reason(console):
    operator, version = make(console)
    console.store.put("migration_topic", "orders", {"plan": "shop"}, 0)
    answer = operator.post("/topics/orders/delete", version=version, typed="orders")
    assert answer.status_code == 409 and "migration plan shop" in text_of(answer)
