"""Permissions at real proxies: every application by every action on every topic and group; and that secrets do not leak."""

import itertools
import stat
import urllib.request
from pathlib import Path

import pytest

from common.admin import applications
from common.admin.administrator import Administrator
from common.admin.applications import Grants
from common.config import open_store
from common.config.applying import wait_applied
from common.contract import Code, Credential, Message, Position
from common.dead_letters import dead_letter_topic
from tests.e2e.running import Application
from tests.fault.stock_clients import Puller, Sender, credential, knows

TOPICS = ("orders", "orders.eu", "orders.eu.vip", "ordersx", "payments")
GROUPS = ("readers", "readers.eu", "billing")
ROLES = {  # name: (grants to send, to pull, topics that it may send to, groups that it may be, topics that it may read)
    "nobody": ([], [], (), (), ()),
    "sends-one": (["orders"], [], ("orders",), (), ()),
    "sends-prefix": (["orders.*"], [], ("orders.eu", "orders.eu.vip"), (), ()),
    "sends-wide": (["orders*"], [], TOPICS[:4], (), ()),
    "sends-all": (["*"], [], TOPICS, (), ()),
    "pulls-one": ([], ["orders", "readers"], (), ("readers",), ("orders",)),
    "pulls-prefix": ([], ["orders.*", "readers*"], (), ("readers", "readers.eu"), ("orders.eu", "orders.eu.vip")),
    "has-a-group-alone": ([], ["billing"], (), ("billing",), ()),
    "has-a-topic-alone": ([], ["payments"], (), (), ("payments",)),
    "pulls-all": ([], ["*"], (), GROUPS, TOPICS),
    "pulls-apart": (
        [],
        Grants(pull_topics=("orders", "readers"), pull_groups=("billing", "payments"), dead_letters=("readers*",)),
        (),
        ("billing",),
        ("orders",),
    ),
    "both": (["payments"], ["orders.eu", "readers.eu"], ("payments",), ("readers.eu",), ("orders.eu",)),
}


@pytest.fixture(scope="module", params=["native", "pure"])
def penstock(request, penstock_factory):
    running = penstock_factory(environment={"PENSTOCK_PURE": "1"} if request.param == "pure" else None)
    running.run("topic", "create", *TOPICS, "--queues", "1", "--durability", "memory")
    running.run("group", "create", "readers")
    return running


def grants(send, pull):
    return pull if isinstance(pull, Grants) else Grants(tuple(send), tuple(pull))


@pytest.fixture(scope="module")
def roles(penstock):
    store = open_store(penstock.facts["config"])
    admin = Administrator(store, "test")
    made = {
        name: Application(*applications.create(admin, name, grants(send, pull)).__dict__.values())
        for name, (send, pull, *_) in ROLES.items()
    }
    assert wait_applied(store, store.version(), 5.0) == []
    store.close()
    with Sender(penstock.producer, made["sends-all"]) as sender:
        for topic in TOPICS:
            knows(sender, topic)
    return made


def verdict(allowed: bool) -> int:
    return Code.OK if allowed else Code.FORBIDDEN


def test_a_send_is_stored_where_it_is_granted_and_forbidden_everywhere_else(penstock, roles):
    for name, (_, _, may_send, _, _) in ROLES.items():
        wanted = {topic: verdict(topic in may_send) for topic in TOPICS}
        with Sender(penstock.producer, roles[name]) as sender:
            for _ in range(2):  # the first by the slow path, which remembers it; the second by what it remembered
                assert {topic: sender.one(topic).code for topic in TOPICS} == wanted, name
            together = sender.send(*(Message(topic=topic, body=b"m") for topic in TOPICS))
            assert {topic: each.code for topic, each in zip(TOPICS, together, strict=True)} == wanted, name
            for action in ({"delay_ms": 60_000}, {"operation": 1, "id": "none"}):
                for topic in set(TOPICS) - set(may_send):
                    assert sender.one(topic, **action).code == Code.FORBIDDEN, (name, topic, action)


def test_a_pull_needs_both_its_group_and_each_topic(penstock, roles):
    for name, (_, _, _, may_be, may_read) in ROLES.items():
        with Puller(penstock.consumer, roles[name]) as puller:
            for group, topic in itertools.product(GROUPS, TOPICS):
                wanted = verdict(group in may_be and topic in may_read)
                for _ in range(2):
                    assert puller.pull(group, topic, max_messages=1).code == wanted, (name, group, topic)
                place = Position(topic, 0, offset=0)
                assert puller.pull(group, positions=[place]).code == wanted, (name, group, topic, "by position")
            both = puller.pull("readers", topics=["orders", "orders.eu"]).code
            assert both == verdict("readers" in may_be and {"orders", "orders.eu"} <= set(may_read)), name


def test_dead_letters_are_for_those_with_a_grant_for_them(penstock, roles):
    for name, (may_send, _, _, may_be, _) in ROLES.items():
        with Puller(penstock.consumer, roles[name]) as puller, Sender(penstock.producer, roles[name]) as sender:
            for own, group in itertools.product(GROUPS, GROUPS):
                wanted = verdict(name == "pulls-apart" and own in may_be and group.startswith("readers"))
                assert puller.pull(own, dead_letter_topic(group), max_messages=1).code == wanted, (name, own, group)
            sent = sender.one(dead_letter_topic("readers")).code
            assert sent == (Code.UNKNOWN_TOPIC if "*" in may_send else Code.FORBIDDEN), name


def test_what_nobody_granted_or_defined_is_denied_without_saying_whether_it_exists(penstock, roles):
    stranger = Application("stranger", "k-0", "s" * 43)
    with Sender(penstock.producer, stranger) as sender, Puller(penstock.consumer, stranger) as puller:
        assert sender.one("orders").code == Code.UNAUTHENTICATED
        assert puller.pull("readers", "orders").code == Code.UNAUTHENTICATED
    with Sender(penstock.producer, roles["nobody"]) as sender:
        existing, missing = sender.one("orders"), sender.one("nothing")
        assert (existing.code, missing.code) == (Code.FORBIDDEN, Code.FORBIDDEN)
        assert existing.error.replace("orders", "nothing") == missing.error


def test_a_grant_and_its_end_count_on_open_connections(penstock, roles):
    with Sender(penstock.producer, roles["nobody"]) as sender, Puller(penstock.consumer, roles["nobody"]) as puller:
        penstock.run("app", "grant", "nobody", "--send", "pay*", "--pull", "payments", "--pull", "billing")
        assert (sender.one("payments").code, puller.pull("billing", "payments").code) == (Code.OK, Code.OK)
        penstock.run("app", "ungrant", "nobody", "--send", "pay*", "--pull", "payments", "--pull", "billing")
        assert sender.one("payments").code == Code.FORBIDDEN
        assert puller.pull("billing", "payments").code == Code.FORBIDDEN


def pages(penstock):
    for port, page in itertools.product(penstock.facts["ops"].values(), ("metrics", "healthz", "readyz")):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5) as answer:
            yield f"{page} of {port}", answer.read()


def test_a_secret_is_in_no_log_metric_error_answer_or_command_line(penstock, roles):
    canary, told = roles["both"], []
    forged = Credential(**{**vars(credential(canary)), "issued_at_ms": 1})
    misplaced = Credential(canary.app, canary.secret, 1, canary.secret.encode())  # by somebody who mixes the fields up
    with Sender(penstock.producer, canary) as sender, Puller(penstock.consumer, canary) as puller:
        for bad in (forged, misplaced, None):
            more = {} if bad is None else {"credential": bad}
            told += [each.error for each in sender.send(Message(topic="none", body=b"m"), **more)]
            told.append(puller.pull("none", "none", **more).error)
    for arguments in (
        ["app", "show", "both"], ["app", "revoke", "both", "k-none"], ["app", "set", "both", "--rate-messages", "9"], ["status"],
    ):  # fmt: skip
        done = penstock.call(*arguments, "-o", "json")
        told += [done.stdout.decode(), done.stderr.decode()]
    places = {f"answer {number}": (text or "").encode() for number, text in enumerate(told)}
    places |= dict(pages(penstock))
    places |= {f"command line of {pid}": Path(f"/proc/{pid}/cmdline").read_bytes() for pid in penstock.pids.values()}
    places |= {f"environment of {pid}": Path(f"/proc/{pid}/environ").read_bytes() for pid in penstock.pids.values()}
    places |= {path.name: path.read_bytes() for path in (penstock.data / "logs").iterdir()}
    places["what up printed"] = penstock.told().encode()
    assert [place for place, held in places.items() if canary.secret.encode() in held] == []


def test_the_files_that_hold_secrets_are_for_their_owner_alone(penstock):
    held = [*(penstock.data / "config").rglob("*"), *penstock.data.glob("*.snapshot"), penstock.data / "cluster.key"]
    modes = {path.relative_to(penstock.data): stat.S_IMODE(path.stat().st_mode) for path in held if path.is_file()}
    assert {path.parts[0] for path in modes} >= {"config", "producer_proxy.snapshot", "cluster.key"}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
