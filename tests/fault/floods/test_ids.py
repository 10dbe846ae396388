"""Wrong credentials with ids that strangers choose: whatever a process keeps by such an id is bounded, and so is its log.

Short by default; `make floods` runs 1,000,000 ids per port.
"""

import os
import urllib.request

import pytest

from common import contract
from common.contract import Credential, Message, PullRequest, SendRequest
from tests.fault.floods.honest import MIB, Beside, HonestTarget, Memory, log_bytes, processes
from tests.fault.floods.strangers import NUMBER, unknown_ids, unknown_ids_on_one
from tests.fault.hostile_frames import framed
from tests.fault.processes import cpu_s
from tests.fault.stock_clients import Sender, knows, now_ms

IDS = int(os.environ.get("PENSTOCK_FLOOD_IDS", "20000"))
WINDOW_S = float(os.environ.get("PENSTOCK_FLOOD_WINDOW_S", "2"))
ID_BYTES_MAX = 32  # an id that is kept costs at least 100
FILLED = 12_000  # more than the tables that are bounded have room for
LOG_BYTES_MAX = 40_000
SERIES_MAX = 20


@pytest.fixture(scope="module")
def shop(penstock_up):
    made = penstock_up.application("shop", send=["*"], pull=["*"])
    penstock_up.run("topic", "create", "orders", "--queues", "1", "--durability", "memory")
    with Sender(penstock_up.producer, made) as sender:
        knows(sender, "orders")
    return made


def template(is_pull):
    wrong = Credential(app=f"app-{(NUMBER % 0).decode()}", key_id="k1", issued_at_ms=now_ms(), signature=b"s" * 32)
    if is_pull:
        pull = PullRequest(credential=wrong, group="g", topics=["orders"], max_messages=1)
        return framed(contract.encode_call("pull", 1, pull))
    return framed(contract.encode_call("send", 1, SendRequest(credential=wrong, messages=[Message(topic="orders")])))


def series(ops_port):
    with urllib.request.urlopen(f"http://127.0.0.1:{ops_port}/metrics", timeout=10) as page:
        return len(page.read().splitlines())


@pytest.mark.parametrize("name", ["producer_proxy", "consumer_proxy"])
def test_ids_that_strangers_choose_are_kept_nowhere(penstock_up, shop, name):
    facts, pid, is_pull = penstock_up.facts[name], penstock_up.pids[name], name == "consumer_proxy"
    address, logs = (facts["host"], facts["port"]), penstock_up.data / "logs"
    ops = penstock_up.facts["ops"][name]
    with processes() as pool:
        found = Beside(HonestTarget(address, shop, "orders", is_pull=is_pull), pool)
        found.warm_up()
        pool.submit(unknown_ids, address, template(is_pull), 0, FILLED, 30.0).result()
        memory, logged, lines, used_s = Memory(pid), log_bytes(logs), series(ops), cpu_s(pid)
        while (called := found.flood["calls"]) < IDS:
            found.windows(unknown_ids, address, template(is_pull), FILLED + called, IDS - called, seconds=WINDOW_S)
        one = pool.submit(unknown_ids_on_one, address, template(is_pull), 0, WINDOW_S).result()
    answered = found.flood["answers"]
    print(f"\n{name}: {found.flood}; CPU {cpu_s(pid) - used_s:.1f} s; {memory.line()}; log +{log_bytes(logs) - logged:,} bytes; "
          f"series +{series(ops) - lines}; on one connection {one}; load {os.getloadavg()[0]:.1f}\n{found.lines()}")  # fmt: skip
    assert not found.failed
    assert answered >= 0.9 * IDS
    assert memory.kept <= max(4 * MIB, IDS * ID_BYTES_MAX // 4)
    assert log_bytes(logs) - logged <= LOG_BYTES_MAX
    assert series(ops) - lines <= SERIES_MAX
