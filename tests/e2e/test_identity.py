"""Caller identity at real proxies: client certificates that applications require, throttled failed attempts, keys' last
uses, and the audit journal."""

import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest

from common import contract
from common.contract import Code, Message, PullRequest, SendRequest
from tests.e2e.pull_parts import Process
from tests.e2e.running import Application
from tests.fault.stock_clients import Puller, Sender, credential, knows
from tests.services import require
from tests.waiting import until


def make_certificate(folder, name, authority=None):
    """`name`.pem and `name`.key; its own authority without one."""
    signed = ["-CA", folder / f"{authority}.pem", "-CAkey", folder / f"{authority}.key"] if authority else []
    named = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:127.0.0.1,DNS:{name}.example"]
    line = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    files = ["-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"]
    subprocess.run([*line, *named, *signed, *files], check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    require(shutil.which("openssl"), "the openssl command")
    made = tmp_path_factory.mktemp("certificates")
    for name, authority in (
        ("ours", None),
        ("vault", "ours"),
        ("other", "ours"),
        ("theirs", None),
        ("stranger", "theirs"),
    ):
        make_certificate(made, name, authority)
    return made


@pytest.fixture(scope="module", params=["native", "pure"])
def ports(request, penstock_up, folder):
    """Of a producer and a consumer proxy: {"send": (plain, tls), "pull": (plain, tls)}."""
    facts = penstock_up.facts
    options = ["--listen", "127.0.0.1:0", "--engine", f"{facts['engine']['host']}:{facts['engine']['port']}"]
    options += ["--config", facts["config"], "--cluster-key", facts["cluster_key"], "--tls-listen", "127.0.0.1:0"]
    options += ["--secrets-key", facts["secrets_key"]]
    options += [
        "--tls-cert",
        folder / "ours.pem",
        "--tls-key",
        folder / "ours.key",
        "--tls-client-ca",
        folder / "ours.pem",
    ]
    env = {"PENSTOCK_PURE": "1"} if request.param == "pure" else None
    running = {
        kind: Process(f"{module}_proxy", *options, env=env)
        for kind, module in (("send", "producer"), ("pull", "consumer"))
    }
    yield {kind: (process.port, process.facts["tls_port"]) for kind, process in running.items()}
    for process in running.values():
        assert process.stop() == 0


@pytest.fixture(scope="module")
def vault(penstock_up):
    penstock_up.run("topic", "create", "secrets", "--queues", "1", "--durability", "memory")
    made = penstock_up.application("vault", send=["secrets"], pull=["secrets", "readers"])
    shown = penstock_up.run("app", "set", "vault", "--certificate", "vault.example")
    assert shown["certificates"] == ["vault.example"]
    return made


@pytest.fixture(scope="module")
def plain(penstock_up, vault):
    return penstock_up.application("plain", send=["secrets"], pull=["secrets", "readers"])


def requests(who):
    return {
        "send": SendRequest(credential=credential(who), messages=[Message(topic="secrets", body=b"m")]),
        "pull": PullRequest(credential=credential(who), group="readers", topics=["secrets"], max_messages=1),
    }


def ask(ports, kind, who, folder=None, certificate=None):
    """(code, sentence) of two calls on one connection, which are the same; with a folder by TLS."""
    frame = contract.encode_call(kind, 1, requests(who)[kind])
    with socket.create_connection(("127.0.0.1", ports[kind][folder is not None]), 10) as sock:
        if folder is not None:
            context = ssl.create_default_context(cafile=folder / "ours.pem")
            if certificate:
                context.load_cert_chain(folder / f"{certificate}.pem", folder / f"{certificate}.key")
            sock = context.wrap_socket(sock, server_hostname="127.0.0.1")
        answers = [_answer(sock, frame, kind) for _ in range(2)]
        sock.close()
    assert answers[0] == answers[1]
    return answers[0]


def _answer(sock, frame, kind):
    sock.sendall(len(frame).to_bytes(4, "big") + frame)
    file = sock.makefile("rb")
    head = file.read(4)
    if len(head) < 4:
        raise ConnectionResetError("closed")
    response = contract.decode_reply(file.read(int.from_bytes(head, "big")), 1)
    result = response.results[0] if kind == "send" else response
    return result.code, result.error


@pytest.mark.parametrize("kind", ["send", "pull"])
def test_an_application_with_certificates_is_served_only_over_tls_that_shows_one(ports, folder, vault, plain, kind):
    until(lambda: ask(ports, kind, plain)[0] == Code.OK, "the topic is known")
    assert ask(ports, kind, vault, folder, "vault")[0] == Code.OK
    for wrong in ({}, {"folder": folder}, {"folder": folder, "certificate": "other"}):
        code, sentence = ask(ports, kind, vault, **wrong)
        assert code == Code.UNAUTHENTICATED
        assert sentence == "credential rejected: application vault needs TLS with one of its client certificates"


@pytest.mark.parametrize("kind", ["send", "pull"])
def test_an_application_without_certificates_needs_none_and_a_strangers_gets_no_connection(ports, folder, plain, kind):
    assert ask(ports, kind, plain, folder)[0] == Code.OK
    assert ask(ports, kind, plain, folder, "other")[0] == Code.OK
    with pytest.raises(OSError):  # an alert of TLS, or the end of the connection
        ask(ports, kind, plain, folder, "stranger")


def test_a_connection_that_fails_again_and_again_is_slowed_and_others_are_not(penstock_up, plain):
    forged = Application(plain.app, plain.key_id, "x" * 43)
    for make, attempt in (
        (lambda who: Sender(penstock_up.producer, who), lambda client: client.one("secrets").code),
        (lambda who: Puller(penstock_up.consumer, who), lambda client: client.pull("readers", "secrets").code),
    ):
        with make(forged) as wrong, make(plain) as right:
            until(lambda client=right, attempt=attempt: attempt(client) == Code.OK, "the topic is known")
            began = time.monotonic()
            assert {attempt(wrong) for _ in range(8)} == {Code.UNAUTHENTICATED}
            assert time.monotonic() - began >= 0.1 + 0.2 + 0.4
            began = time.monotonic()
            assert attempt(right) == Code.OK
            assert time.monotonic() - began < 0.5


def test_a_rotated_key_overlaps_and_its_last_use_is_shown(penstock_up):
    penstock_up.run("topic", "create", "turns", "--queues", "1", "--durability", "memory")
    old = penstock_up.application("turner", send=["turns"])
    made = penstock_up.run("app", "rotate", "turner")
    new = Application(made["app"], made["key_id"], made["secret"])
    unused, _ = penstock_up.run("app", "show", "turner")["keys"]
    assert unused["last_used"] is None
    for key in (old, new):
        with Sender(penstock_up.producer, key) as sender:
            knows(sender, "turns")

    def uses():
        return {key["key_id"]: key["last_used"] for key in penstock_up.run("app", "show", "turner")["keys"]}

    shown = until(
        lambda: all((found := uses()).values()) and found, "both uses are told; a proxy's page is some seconds old"
    )
    assert set(shown) == {old.key_id, new.key_id}
    assert all(used.startswith(time.strftime("%Y-", time.gmtime())) for used in shown.values())


def test_a_pull_that_waits_is_refused_when_its_key_is_revoked(penstock_up):
    shop, topic = penstock_up.application("leaving", send=["*"], pull=["*"]), "revoked.orders"
    other = penstock_up.application("staying", send=["*"])
    penstock_up.run("topic", "create", topic, "--queues", "1")
    with Sender(penstock_up.producer, other) as sender:
        knows(sender, topic)
    answers = []

    def wait():
        with Puller(penstock_up.consumer, shop) as puller:
            while not answers:
                response = puller.pull("leavers", topic, max_messages=10, wait_ms=20_000)
                if response.code != Code.OK or not response.deliveries:
                    answers.append(response)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: waiting_pulls(penstock_up) == 1, "the pull waits", 20)
    began = time.monotonic()
    penstock_up.run("app", "revoke", "leaving", shop.key_id)
    with Sender(penstock_up.producer, other) as sender:
        assert sender.one(topic, b"after the revocation").code == Code.OK
    thread.join(15)
    assert [(each.code, each.deliveries) for each in answers] == [(Code.UNAUTHENTICATED, [])]
    assert time.monotonic() - began < 15


def waiting_pulls(penstock_up) -> int:
    port = penstock_up.refresh()["ops"]["consumer_proxy"]
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return sum(
        int(float(line.split()[-1])) for line in text.splitlines() if line.startswith("penstock_consumer_parked")
    )


def test_every_change_is_in_the_journal_with_who_and_from_what_to_what(penstock_up):
    penstock_up.run("topic", "create", "noted", "--queues", "1", "--durability", "memory")
    penstock_up.run("topic", "set", "noted", "--rate-messages", "5")
    who = penstock_up.application("notary", send=["noted"], pull=["noted", "reader"])
    with Sender(penstock_up.producer, who) as sender, Puller(penstock_up.consumer, who) as puller:
        knows(sender, "noted")
        until(lambda: puller.pull("reader", "noted").code == Code.OK, "the group pulls")
    penstock_up.run("group", "reset", "reader", "--topic", "noted", "--to", "earliest", "--preview")
    penstock_up.run("group", "reset", "reader", "--topic", "noted", "--to", "latest")
    penstock_up.run("group", "dead-letters", "purge", "reader", "--yes")
    changed, created = penstock_up.run("audit", "--name", "noted")
    assert (created["action"], created["old"], created["new"]["queues"]) == ("create", None, 1)
    assert (changed["action"], changed["changed"]) == ("change", "rate_messages - → 5")
    assert changed["version"] > created["version"]
    assert changed["who"].startswith("cli:") and changed["at"].endswith("Z")
    (moved,) = penstock_up.run("audit", "--kind", "progress")
    assert (moved["action"], moved["names"], moved["new"]) == ("reset", ["reader/noted"], {"0": 1})
    (purged,) = penstock_up.run("audit", "--kind", "dead_letters")
    assert (purged["names"], purged["new"]["purged"]) == (["reader"], 0)
    shown = penstock_up.call("audit").stdout.decode()
    assert who.secret not in shown and "    rate_messages - → 5\n" in shown
    assert max(map(len, shown.splitlines())) <= 80


def shown_certificate(port, folder):
    """The common name that a new connection is shown."""
    context = ssl.create_default_context(cafile=folder / "ours.pem")
    with (
        socket.create_connection(("127.0.0.1", port), 10) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as tls,
    ):
        return dict(part[0] for part in tls.getpeercert()["subject"])["commonName"]


@pytest.mark.parametrize("module", ["producer_proxy", "consumer_proxy"])
def test_a_replaced_certificate_is_shown_without_a_restart_and_a_broken_one_is_not(penstock_up, folder, module):
    facts, pem, key = penstock_up.facts, folder / f"{module}.pem", folder / f"{module}.key"
    make_certificate(folder, module, "ours")
    options = ["--listen", "127.0.0.1:0", "--engine", f"{facts['engine']['host']}:{facts['engine']['port']}"]
    options += ["--config", facts["config"], "--cluster-key", facts["cluster_key"], "--tls-listen", "127.0.0.1:0"]
    options += ["--secrets-key", facts["secrets_key"]]
    options += ["--tls-cert", pem, "--tls-key", key]
    proxy = Process(module, *options)
    tls_port = proxy.facts["tls_port"]
    assert shown_certificate(tls_port, folder) == module
    for kind in ("pem", "key"):
        (folder / f"other.{kind}").replace(folder / f"{module}.{kind}")
    make_certificate(folder, "other", "ours")  # for the next test
    until(lambda: shown_certificate(tls_port, folder) == "other", "the new certificate is in use")
    left_s = next(
        line.split()[1]
        for line in proxy.page("/metrics")[1].splitlines()
        if line.startswith("penstock_certificate_left")
    )
    assert 86_400 < float(left_s) < 2 * 86_400
    pem.write_text("nothing")
    until(lambda: "changed files cannot be used" in proxy.page("/readyz")[1], "the broken file is noted")
    assert proxy.page("/readyz")[0] == 200
    assert shown_certificate(tls_port, folder) == "other"
    assert proxy.stop() == 0
