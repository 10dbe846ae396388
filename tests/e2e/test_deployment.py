"""The page about several machines, followed literally on three of them: each block on the machines that it names."""

import json
import re
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.pages import NOT_RUN
from tests.services.machines import ROOT, Machine
from tests.services.network import Network
from tests.waiting import until

BLOCK = re.compile(r"^```(sh|python) ([a-z0-9 ]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMES = ("m1", "m2", "m3")
ROLLING = "rolling"
TO_REACH = 100  # messages acknowledged between two restarts

TRAFFIC = """
import json, ssl, sys, threading, time
from penstock_client import Consumer, Message, Options, Producer, SendError

key = json.load(open("shop.json"))
options = Options(ssl_context=ssl.create_default_context(cafile="/etc/penstock/ca.pem"))
credential = (key["app"], key["key_id"], key["secret"])
sent, failed, received, stop, finished = [], [], [], threading.Event(), threading.Event()

def produce():
    with Producer("m1:9710,m2:9710,m3:9710", *credential, options) as producer:
        number = 0
        while not stop.wait(0.005):
            number += 1
            try:
                producer.send(Message(topic="orders", key=str(number % 7), body=str(number).encode()))
                sent.append(number)
            except SendError as error:
                failed.append(str(error))

def consume():
    with Consumer("m1:9711,m2:9711,m3:9711", *credential, "billing", ["orders"], options=options) as consumer:
        while not finished.is_set():
            for delivery in consumer.pull(max_messages=100, wait_ms=200):
                received.append(int(delivery.message.body))
                consumer.done(delivery)

threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
for each in threads:
    each.start()
for line in sys.stdin:
    print(len(sent), flush=True)
stop.set()
threads[0].join()
end = time.monotonic() + 30
while len(set(received)) < len(sent) and time.monotonic() < end:
    time.sleep(0.1)
finished.set()
threads[1].join()
print(json.dumps({"sent": sent, "failed": failed, "received": received}))
"""


def blocks() -> list[tuple[str, list[str], str]]:
    """(language, words after it, lines) of the page's blocks for machines."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    found = [(language, words.split(), text) for language, words, text in BLOCK.findall(page)]
    return [each for each in found if not {*each[1]} & {*NOT_RUN}]  # the machines run the code of this tree


@pytest.fixture
def machines(tmp_path):
    with ExitStack() as stack:
        network = stack.enter_context(Network(*NAMES))
        yield {name: stack.enter_context(Machine(name, network, tmp_path)) for name in NAMES}


class Traffic:
    """An application on m3 that sends and pulls over TLS until it is left."""

    def __init__(self, machine: Machine) -> None:
        self._process = subprocess.Popen(
            machine.command("env", "--chdir=/root", sys.executable, "-c", TRAFFIC),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.result: dict[str, list] = {}

    def _sent(self) -> int:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def wait_more(self) -> None:
        goal = self._sent() + TO_REACH
        until(lambda: self._sent() >= goal, "messages are acknowledged", 20)

    def __enter__(self) -> "Traffic":
        return self

    def __exit__(self, *_: object) -> None:
        told, _ = self._process.communicate(timeout=60)
        self.result = json.loads(told.splitlines()[-1]) if told else {}


def wait_in_sync(machines: dict[str, Machine]) -> None:
    command = "set -a; . /etc/penstock/cluster.conf; penstock broker list"
    shown = [""]

    def is_in_sync() -> bool:
        shown[0] = machines["m1"].run(command)
        return shown[0].count("SYNC_REPLICATION") == 2

    try:
        until(is_in_sync, "both brokers are in sync", 30)
    except AssertionError as error:
        journals = "\n".join(f"{name}\n{each.journals()}" for name, each in machines.items())
        raise AssertionError(f"{shown[0]}\n{journals}") from error


def follow(machines: dict[str, Machine], language: str, names: list[str], text: str) -> str:
    """Run a block; returns its last output."""
    shown = ""
    for name in names:
        if language == "python":
            machines["m1"].run(f"scp shop.json {name}:$PWD/")
        program = ("bash", "-e", "-s") if language == "sh" else (sys.executable, "-")
        shown = machines[name].run(text, program=program)
    return shown


def test_the_page_makes_a_cluster_over_tls_and_restarts_it_without_a_lost_message(machines):
    shown = ""
    for language, names, text in blocks():
        if names[0] != ROLLING:
            shown = follow(machines, language, names, text)
        if "--broker b" in text:
            wait_in_sync(machines)
    assert shown.startswith("stored in queue") and shown.endswith("customer-7 b'first'\n"), shown

    with Traffic(machines["m3"]) as traffic:
        for language, (_, *names), text in (each for each in blocks() if each[1][0] == ROLLING):
            for name in names:
                traffic.wait_more()
                follow(machines, language, [name], text)
                wait_in_sync(machines)
        traffic.wait_more()
    assert traffic.result["failed"] == []
    assert set(traffic.result["received"]) == set(traffic.result["sent"])
