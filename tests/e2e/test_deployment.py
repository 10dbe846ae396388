"""docs/deployment.md, followed literally on three machines: each block on the machines that it names."""

import json
import subprocess
import sys
from contextlib import ExitStack

import pytest

from tests.services.machines import Machine
from tests.services.network import Network
from tests.services.page_cluster import NAMES, ROLLING, blocks, follow, make_cluster, wait_in_sync
from tests.waiting import until

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


def test_the_page_makes_a_cluster_over_tls_and_restarts_it_without_a_lost_message(machines):
    shown = make_cluster(machines)
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
