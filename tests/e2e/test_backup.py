"""The page about backups, followed on a running `penstock up`."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from common.contract import Ack, Code
from tests.e2e.running import PENSTOCK, RunningPenstock
from tests.fault.stock_clients import Puller, Sender, retry_until_served
from tests.waiting import until

PAGE = Path(__file__).parents[2] / "docs" / "backup.md"


def commands(title, places):
    """Lines of the block below a title, with the reader's own places."""
    block = re.search(rf"## {title}\n.*?```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    for old, new in places.items():
        block = block.replace(old, str(new))
    return [shlex.split(line) for line in block.splitlines()]


def run(arguments, data):
    """Run a command as the page has it; those of the configuration are for the instance in `data`."""
    if arguments[0] == "config" and "--data" not in arguments:
        arguments = [*arguments, "--data", str(data)]
    done = subprocess.run([*PENSTOCK, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stderr}{done.stdout}"


@pytest.fixture
def penstock(tmp_path):
    made = RunningPenstock(tmp_path / "data", "--no-console").start()
    yield made
    made.end()


def pulled(penstock, shop, count):
    """Bodies of so many messages, each acknowledged."""
    found = []

    def step():
        with Puller(penstock.consumer, shop) as puller:
            response = puller.pull("readers", "orders", max_messages=count - len(found), wait_ms=200)
            acks = [Ack(each.receipt) for each in response.deliveries or []]
            assert puller.pull("readers", "orders", max_messages=0, acks=acks, wait_ms=0).code == Code.OK
        found.extend(each.message.body for each in response.deliveries or [])
        return len(found) >= count

    until(step, f"{count} messages are pulled", 20)
    return found


def test_the_commands_of_the_page_bring_messages_progress_and_configuration_back(penstock, tmp_path):
    shop = penstock.application("shop", send=["*"], pull=["*"])
    penstock.run("topic", "create", "orders", "--queues", "1")
    with Sender(penstock.producer, shop) as sender:
        for number in range(20):
            retry_until_served(lambda n=number: sender.one("orders", b"%d" % n).code == Code.OK, "it is stored")
    assert pulled(penstock, shop, 5) == [b"%d" % number for number in range(5)]
    until(lambda: penstock.run("group", "lag", "readers")[0]["lag"] == 15, "the acknowledgements count", 10)
    places = {".penstock": penstock.data, "/mnt/backup": tmp_path / "backup", "/srv/restored": tmp_path / "restored"}
    (tmp_path / "backup").mkdir()
    for _, *arguments in commands("Make one", places):
        run(arguments, penstock.data)
    with Sender(penstock.producer, shop) as sender:
        assert sender.one("orders", b"after the backup").code == Code.OK
    penstock.end()
    shutil.rmtree(penstock.data / "engine")

    restored = RunningPenstock(tmp_path / "restored", "--no-console")
    try:
        for program, *arguments in commands("Restore", places):
            if program == "cp":
                for each in arguments[:-1]:
                    shutil.copy(each, arguments[-1])
            elif arguments[0] == "up":
                restored.start()
            else:
                run(arguments, restored.data)
        assert pulled(restored, shop, 15) == [b"%d" % number for number in range(5, 20)]
    finally:
        restored.end()
