"""A running group gets a key for brokers and one for controllers, one process after the other, as docs/replicas.md says."""

import json

from common.contract import Code
from common.secret_file import ensure_key
from engine.link import layout
from engine.link.proof import REPLICA_ROLE, client_proof
from tests import link_bytes as raw
from tests.fault.replicated_group import GROUP, ReplicatedGroup
from tests.fault.stock_clients import Sender, retry_until_served
from tests.waiting import until

ALSO = "--also-cluster-key"


class ChangingGroup(ReplicatedGroup):
    """A group of a and b with controller c1, which share the cluster key at first."""

    def __init__(self, folder, url):
        super().__init__(folder, url)
        names = ("replica", "controller")
        self.options = [part for name in names for part in (f"--{name}-key", str(ensure_key(folder / f"{name}.new")))]

    def start_with(self, name, *options):
        """Start a process again, with these options besides those that it had first."""
        process = self.processes[name]
        first = [each for each in process.command if each not in (*self.options, ALSO)]
        process.end()
        process.command = [*first, *options]
        process.start()

    def lead(self, name):
        """Make a broker master by the new key of controllers."""

        def is_led():
            done = self.call("broker", "switch", GROUP, "--to", name, *self.options[2:])
            return done.returncode == 0 or self.master == name

        until(is_led, f"{name} is master", 20)

    def findings(self):
        """What `penstock doctor` says about keys of brokers."""
        found = json.loads(self.call("doctor", "-o", "json").stdout)["findings"]
        return [each["words"] for each in found if each["subject"] == "keys of brokers"]

    def answer_to_the_cluster_key(self, broker):
        """An engine's answer to a proxy that says it was a replica."""
        link = raw.RawLink(int(self.addresses[broker].rpartition(":")[2]))
        return link.ask(layout.AUTH, client_proof(self.key.read_bytes(), link.greet(REPLICA_ROLE)))


def test_a_running_group_gets_its_keys_without_a_pause_and_a_mixed_one_says_which_option_is_missing(tmp_path):
    with ChangingGroup(tmp_path / "group", f"file://{tmp_path}/config") as group:
        shop = group.application("shop", send=["*"])
        group.run("topic", "create", "orders", "--queues", "4")
        assert group.answer_to_the_cluster_key("a")[0] == layout.OK and f"{GROUP}/a" in group.findings()[0]
        assert "cluster key, which every proxy has, is taken" in group.processes["a"].told()

        group.start_with("b", *group.options)  # too early
        fault = "takes the cluster key for a replica, as it was started without --replica-key"
        until(lambda: fault in group.processes["b"].told(), "the slave says what its master lacks", 20)
        rows = group.run("broker", "show", GROUP, "--cluster-key", str(group.key))["brokers"]
        assert "start this process with --controller-key" in next(
            each["answer"] for each in rows if each["broker"] == "b"
        )
        group.start_with("b", *group.options, ALSO)
        group.wait_in_sync()
        group.switch()
        group.start_with("a", *group.options, ALSO)
        group.wait_in_sync()

        controller = group.processes["c1"]
        at = controller.command.index("--cluster-key")
        controller.command[at : at + 2] = group.options[2:]
        controller.end()
        controller.start()
        group.start_with("a", *group.options)
        group.wait_in_sync()
        group.lead("a")
        group.start_with("b", *group.options)
        group.wait_in_sync()

        for broker in group.brokers:
            code, sentence = group.answer_to_the_cluster_key(broker)
            assert code == layout.UNAUTHENTICATED and b"--replica-key" in sentence
        assert group.findings() == []
        with Sender(group.producer, shop) as sender:
            retry_until_served(lambda: sender.one("orders", b"m").code == Code.OK, "a proxy sends as before")
