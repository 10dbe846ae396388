"""A producer proxy's disk buffer whose device returns errors, while the engine is away and after."""

import errno

import pytest

from common.contract import Code
from tests.fault.buffered import engine_stopped, stored, warm
from tests.fault.own_proxy import OwnProxy
from tests.fault.paced import STORED, Paced, compare
from tests.services.failing_disk import READ, SYNC, WRITE
from tests.waiting import until


def fill(load: Paced, more: int = 200) -> None:
    """Until so many further messages are in the buffer."""
    seen = len(load.told)
    until(lambda: [each.code for each in load.told[seen:]].count(Code.BUFFERED) >= more, "a backlog", 20)


def assert_kept(penstock, shop, topic, told) -> None:
    assert {each.code for each in told} <= {*STORED, Code.UNAVAILABLE, Code.TIMEOUT}
    assert compare(told, stored(penstock, shop, topic)).broken == {}


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
def test_a_buffer_that_cannot_write_refuses_and_takes_messages_again(penstock, shop, tmp_path, failing_disk, error):
    topic = f"disk.orders.write-{error}"
    with OwnProxy(penstock, "--buffer", str(tmp_path / "buffer")) as proxy:
        warm(proxy, shop, topic)
        with engine_stopped(penstock):
            load = Paced(lambda: proxy.address, shop, topic, 1000).start()
            fill(load)
            with failing_disk.failing(WRITE, f"{tmp_path}/buffer", error):
                seen = len(load.told)
                until(lambda: failing_disk.failed and len(load.told) > seen + 100, "writes that failed", 20)
            fill(load)
        proxy.wait_drained()
        told = load.stop()
        proxy.wait_drained()
    assert_kept(penstock, shop, topic, told)


def test_a_buffer_whose_sync_failed_takes_nothing_until_a_restart_and_keeps_what_it_took(
    penstock, shop, tmp_path, failing_disk
):
    topic = "disk.orders.sync"
    with OwnProxy(penstock, "--buffer", str(tmp_path / "buffer")) as proxy:
        warm(proxy, shop, topic)
        with engine_stopped(penstock):
            load = Paced(lambda: proxy.address, shop, topic, 1000).start()
            fill(load)
            with failing_disk.failing(SYNC, f"{tmp_path}/buffer"):
                until(lambda: failing_disk.failed, "a sync that failed", 20)
            until(lambda: "takes nothing until restarted" in proxy.told(), "a sentence", 20)
            told = load.stop()
            proxy.stop()
            proxy.start()
            load = Paced(lambda: proxy.address, shop, topic, 1000, name="again.").start()
            fill(load)
        proxy.wait_drained()
        told += load.stop()
        proxy.wait_drained()
    assert_kept(penstock, shop, topic, told)


def test_a_buffer_that_cannot_be_read_for_a_while_loses_nothing(penstock, shop, tmp_path, failing_disk):
    topic = "disk.orders.read"
    with OwnProxy(penstock, "--buffer", str(tmp_path / "buffer")) as proxy:
        warm(proxy, shop, topic)
        with engine_stopped(penstock):
            load = Paced(lambda: proxy.address, shop, topic, 1000).start()
            fill(load)
            told = load.stop()
            reading = failing_disk.failing(READ, f"{tmp_path}/buffer")
            reading.__enter__()
        until(lambda: failing_disk.failed > 3, "reads that failed", 20)
        assert proxy.backlog() > 0
        reading.__exit__(None, None, None)
        proxy.wait_drained()
        assert proxy.metric("penstock_buffer_damaged_total") == 0
    assert_kept(penstock, shop, topic, told)
