"""Pages of connected clients, over answers of proxies that the tests give; the proxies' side is in tests/unit/common/ops."""

import pytest

from common.admin.connections import ConnectionRow, ConnectionsTold
from common.config.errors import EntryNotFound
from common.operator_proof import NO_KEYS, OperatorKeys
from console.installation import client_connections
from console.installation.client_connections import ClientConnections
from tests.unit.console.consoles import text_of

KEYS = OperatorKeys(admin=b"key")
ROW = ConnectionRow(
    "consumer_proxy@10.0.0.2:9001/host", "ab-1", "10.0.0.1:4711", False, 1_000, "shop", "readers", ("orders", "<b>"), 7, True, 2048
)  # fmt: skip


@pytest.fixture
def told(console, monkeypatch):
    """The answers by what is wanted, and the connections that were closed."""
    asked, closed = [], []

    def listed(store, wanted, limit):
        asked.append((dict(wanted), limit))
        return ConnectionsTold([ROW], 30, ["proxy two: away"])

    def find(store, id):
        if id != ROW.id:
            raise EntryNotFound(f"connection {id}: not found")
        return ROW

    def close(admin, keys, id):
        closed.append((admin.who, keys, id))
        return find(admin.store, id)

    monkeypatch.setattr(client_connections, "list_connections", listed)
    monkeypatch.setattr(client_connections, "find_connection", find)
    monkeypatch.setattr(client_connections, "close_connection", close)
    console.with_parts(connections=ClientConnections(console.parts.configuration, KEYS))
    return asked, closed


def test_the_list_names_client_application_group_and_topics_and_what_is_missing(console, told):
    page = console.as_role("viewer").get("/connections?topic=orders")
    text = text_of(page)
    assert all(each in text for each in ("10.0.0.1:4711", "shop", "readers", "orders", "and 4 more", "1 of 30", "away"))
    assert b"<b>" not in page.data.split(b"<main")[1].split(b"readers")[1].split(b"</td>")[0]
    assert told[0][-1][0] == {"application": "", "group": "", "topic": "orders"}


def test_a_viewer_sees_no_way_to_close_and_has_none(console, told):
    viewer = console.as_role("viewer")
    assert "/close" not in viewer.get("/connections").get_data(as_text=True)
    assert viewer.post("/connections/ab-1/close").status_code == 403 and told[1] == []


def test_an_operator_closes_a_connection_after_a_page_that_names_it(console, told):
    operator = console.as_role("operator")
    assert "10.0.0.1:4711" in text_of(operator.get("/connections/ab-1/close"))
    assert operator.post("/connections/ab-1/close").location == "/connections?said=connections.close"
    assert told[1] == [("console:operator", KEYS, "ab-1")]
    (row,) = console.parts.log.latest("close connection")
    assert (row["subject"], row["old"]["application"]) == ("connection ab-1", "shop")
    assert operator.post("/connections/ab-2/close").status_code == 404


def test_without_a_key_the_page_names_the_command(console, told):
    console.with_parts(connections=ClientConnections(console.parts.configuration, NO_KEYS))
    operator = console.as_role("operator")
    assert "penstock connections close ab-1" in text_of(operator.get("/connections/ab-1/close"))
    assert operator.post("/connections/ab-1/close").status_code == 409 and told[1] == []


def test_a_store_that_is_away_is_said_and_the_page_is_there(console):
    console.store.set_available(False)
    answer = console.as_role("viewer").get("/connections")
    assert answer.status_code == 200 and "in an outage" in text_of(answer)
