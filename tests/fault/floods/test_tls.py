"""Strangers over TLS: half-open handshakes and whole ones, in two waves, beside honest clients.

Short by default; `make floods` runs 10,000 strangers in longer windows.
"""

import os
import shutil
import time

import pytest

from tests.fault.floods.honest import MIB, Beside, HonestTarget, Memory, processes
from tests.fault.floods.strangers import half_open, handshakes
from tests.fault.own_proxy import OwnProxy
from tests.fault.processes import cpu_s, descriptors
from tests.fault.stock_clients import Sender, knows
from tests.services import require
from tests.services.self_signed import self_signed
from tests.waiting import until

STRANGERS = int(os.environ.get("PENSTOCK_FLOOD_STRANGERS", "1500"))
WINDOW_S = float(os.environ.get("PENSTOCK_FLOOD_WINDOW_S", "2"))
AFTER_S = float(os.environ.get("PENSTOCK_FLOOD_AFTER_S", "0"))
PAIRS = 3 if WINDOW_S >= 5 else 1
PLACES = 1_000  # common.net.places.TLS_STRANGERS_MAX
STRANGER_BYTES = 64 << 10


@pytest.fixture(scope="module")
def proxy(penstock_up, tmp_path_factory):
    require(shutil.which("openssl"), "the openssl command")
    chain, key = self_signed(tmp_path_factory.mktemp("tls"), "localhost")
    options = ["--tls-listen", "127.0.0.1:0", "--tls-cert", str(chain), "--tls-key", str(key)]
    with OwnProxy(penstock_up, *options) as made:
        yield made


@pytest.fixture(scope="module")
def target(penstock_up, proxy):
    shop = penstock_up.application("shop", send=["*"], pull=["*"])
    penstock_up.run("topic", "create", "orders", "--queues", "1", "--durability", "memory")
    with Sender(proxy.address, shop) as sender:
        knows(sender, "orders")
    return HonestTarget(proxy.address, shop, "orders", (proxy.facts["host"], proxy.facts["tls_port"]))


@pytest.mark.parametrize("flood", [half_open, handshakes])
def test_strangers_over_tls_cost_a_bounded_memory_once_and_no_honest_call_its_answer(proxy, target, flood):
    pid = proxy.facts["pid"]
    with processes() as pool:
        Beside(target, pool).warm_up()
        open_before, memory, kept = descriptors(pid), Memory(pid), []
        for wave in (1, 2):
            used_s = cpu_s(pid)
            found = Beside(target, pool)
            for _ in range(PAIRS):
                found.windows(flood, target.tls, STRANGERS, seconds=WINDOW_S)
            print(f"\n{flood.__name__}, wave {wave}: {found.flood}, CPU {cpu_s(pid) - used_s:.1f} s\n{found.lines()}")
            until(lambda: descriptors(pid) <= open_before + 2, "strangers are gone", 20)
            time.sleep(AFTER_S)
            kept.append(memory.kept)
            print(f"{memory.line()}; load {os.getloadavg()[0]:.1f}")
            assert not [each for each in found.failed if "timed out" not in each]
            assert found.flood["begun"] >= 20
            assert memory.peak <= PLACES * STRANGER_BYTES
        assert kept[1] - kept[0] <= 8 * MIB, "a second wave uses what the first one has left"
