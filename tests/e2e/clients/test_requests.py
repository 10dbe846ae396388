"""Request-reply by the clients: the asker at one producer proxy, the replier, in another language, at a second one."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.e2e.pull_parts import SECRET
from tests.e2e.request_parts import TOPIC, RequestSite
from tests.services import thrift_toolchains

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "clients" / "python"))

from penstock_client import Consumer, Message, Options, Producer, SendError
from penstock_client.contract import Code

QUICK = Options(deadline_ms=5_000)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = RequestSite(tmp_path_factory.mktemp("requests"))
    yield made
    made.close()


def at(process) -> str:
    return f"127.0.0.1:{process.port}"


def started(language: str, name: str, app: str, endpoints: str, *arguments: str) -> subprocess.Popen[str]:
    line = [*thrift_toolchains.program(language, name), "--endpoints", endpoints, "--app", app, "--key-id", "k1"]
    return subprocess.Popen(
        [*line, "--topic", TOPIC, *arguments],
        env=thrift_toolchains.environment(PENSTOCK_SECRET=SECRET),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("asking", "replying"), [("php", "go"), ("java", "node"), ("node", "rust"), ("rust", "csharp"), ("csharp", "java")]
)
def test_a_request_and_its_reply_pass_through_different_proxies(site, asking, replying):
    options = ("--group", "billing", "--reply-endpoints", at(site.answer), "--wait-ms", "5000")
    thrift_toolchains.build(asking)
    replier = started(replying, "reply", "worker", at(site.consumer), *options)
    try:
        asker = started(
            asking, "request", "asker", at(site.ask), "--wait-ms", "10000", "six times seven", "and", "prüfen"
        )
        out, errors = asker.communicate(timeout=60)
        assert (out.splitlines(), errors) == (["re: six times seven", "re: and", "re: prüfen"], "")
        assert replier.wait(30) == 0, replier.stderr.read()
    finally:
        replier.kill()
        replier.communicate()


def test_the_python_client_asks_and_replies(site):
    with (
        Producer(at(site.ask), "asker", "k1", SECRET, QUICK) as asker,
        Producer(at(site.answer), "worker", "k1", SECRET, QUICK) as replier,
        Consumer(at(site.consumer), "worker", "k1", SECRET, "billing", [TOPIC], options=QUICK) as consumer,
    ):

        def answer():
            (delivery,) = consumer.pull(1, wait_ms=5_000)
            replier.reply(delivery, b"re: " + delivery.message.body, {"from": "python"})
            consumer.done(delivery)

        answering = threading.Thread(target=answer)
        answering.start()
        reply = asker.request(Message(topic=TOPIC, body=b"hello"), wait_ms=5_000)
        answering.join(10)
        assert (reply.body, reply.properties) == (b"re: hello", {"from": "python"})
        with pytest.raises(SendError) as nobody:
            asker.request(Message(topic=TOPIC, body=b"anybody?"), wait_ms=200)
        assert nobody.value.result.code == Code.NO_CONSUMER


def test_the_cpp_client_builds_with_request_and_reply():
    thrift_toolchains.build("cpp")
