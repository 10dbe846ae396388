"""Real proxies whose user of ZooKeeper may read the configuration and write reports: they start, serve and follow."""

import json

import pytest

from common.config import open_store
from common.config.definitions import Fence
from common.contract import Code, Message
from tests.e2e.request_parts import RequestSite
from tests.services.zookeeper import ZooKeeper
from tests.waiting import until

FENCE = Fence("shop", "shop.1", 1_000)


class ReadingSite(RequestSite):
    """The proxies have a user of their own."""

    def _configure(self):
        super()._configure()
        self.store = open_store(self.config)
        self.store.set_users(None, ["proxies:second"])

    def close(self):
        super().close()
        self.store.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    for name, credential in (("writers", "penstock:first"), ("proxies", "proxies:second")):
        (folder / name).touch(0o600)
        (folder / name).write_text(credential)
    with ZooKeeper(folder / "zookeeper") as server:
        url = f"zookeeper://{server.address}/penstock?auth_file={folder}"
        made = ReadingSite(folder, f"{url}/writers", f"{url}/proxies")
        yield made
        made.close()


def conditions(proxy):
    return json.loads(proxy.page("/readyz")[1])


def test_messages_pass_changes_are_applied_and_all_report(site):
    (result,) = site.sender(site.ask).send(Message(topic="orders", body=b"first"))
    assert result.code == Code.OK
    consumer = site.client(site.consumer)
    found = consumer.pull(max_messages=1, wait_ms=10_000)
    assert [each.message.body for each in found.deliveries] == [b"first"]
    kinds = sorted(name.partition("@")[0] for name in site.store.applied())
    assert kinds == ["consumer_proxy", "engine", "producer_proxy", "producer_proxy"]
    site.store.put("topic", "bills", {"queues": 1, "durability": "memory"}, 0)
    version = site.store.version()
    until(
        lambda: all(each.version["topic"] >= version["topic"] for each in site.store.applied().values()), "the reports"
    )
    assert site.sender(site.ask).send(Message(topic="bills"))[0].code == Code.OK
    assert site.store.wrong_access() == []
    for proxy in (site.ask, site.answer, site.consumer):
        assert "config access" not in json.dumps(conditions(proxy))


def test_a_fence_whose_command_has_died_ends_by_its_time(site):
    found = site.store.get("topic", "orders")
    site.store.put("topic", "orders", {**found.value, "fence": FENCE.to_value()}, found.version)
    sender = site.sender(site.answer)

    def code():
        return sender.send(Message(topic="orders", body=b"behind"))[0].code

    until(lambda: code() == Code.FENCED, "the fence")
    until(lambda: code() == Code.OK, "its end")
    assert site.store.get("topic", "orders").value["fence"] == FENCE.to_value()
    assert site.store.get("ended_fence", "orders").value == {"fence": "shop.1"}
    until(lambda: site.sender(site.ask).send(Message(topic="orders"))[0].code == Code.OK, "the other proxy to know it")


def test_a_repair_journal_registers(site, tmp_path):
    proxy = site.producer_proxy("--journal", tmp_path / "journal")
    assert "config access" not in json.dumps(conditions(proxy))
    until(lambda: any(each.version.get("journal") for each in site.store.applied().values()), "its report")


def test_a_proxy_with_the_writers_password_says_so_in_readyz(site):
    site.proxy_config, kept = site.config, site.proxy_config
    try:
        careless = site.producer_proxy()
    finally:
        site.proxy_config = kept
    until(lambda: "give it the one of the readers" in json.dumps(conditions(careless)), "the note")
