"""The SCRAM credentials of a cluster's user are revoked while both drivers send and copy, and are given back."""

from contextlib import closing

import pytest

from common.contract import Code, Message
from common.kafka.base import NewKafkaTopic
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import DRIVERS, installed, open_driver
from tests.e2e.kafka.home import Sender
from tests.e2e.running import RunningPenstock
from tests.fault.kafka.test_outages import Load, stored_ok
from tests.services import require
from tests.services.kafka import SCRAM_PASSWORD, SCRAM_USER, KafkaBrokers
from tests.waiting import until

pytestmark = pytest.mark.slow
REAUTHENTICATE_MS = 2_000
SEEN_S_MAX = 120.0
CLUSTERS = {driver.partition("-")[0]: driver for driver in DRIVERS}
"""One name in the configuration per driver, for the same broker; a topic of the same name has its home there."""


class TwoDrivers:
    """A broker whose logins end soon, and a Penstock that reaches it by each driver."""

    def __init__(self, folder) -> None:
        self.brokers = KafkaBrokers(folder / "kafka", secure=True, reauthenticate_ms=REAUTHENTICATE_MS).start()
        with closing(open_driver().admin(KafkaConnection("main", (self.brokers.bootstrap,)))) as admin:
            assert admin.create_topics(dict.fromkeys(CLUSTERS, NewKafkaTopic(1, 1))) == {}
            until(lambda: len(admin.topics([*CLUSTERS])) == len(CLUSTERS), "the topics", 60.0)
        self.penstock = RunningPenstock(folder / "data", "--no-console")
        (folder / "data" / "config").mkdir(parents=True)
        (folder / "password").write_text(SCRAM_PASSWORD)
        for name, driver in CLUSTERS.items():
            self.penstock.run(
                "kafka", "add", name, "--bootstrap", self.brokers.sasl_bootstrap, "--security", "sasl_plaintext",
                "--sasl-mechanism", "SCRAM-SHA-256", "--driver", driver, "--user", SCRAM_USER,
                "--password-file", str(folder / "password"),
            )  # fmt: skip
            self.penstock.run(
                "topic", "create", name, "--home", f"kafka:{name}", "--queues", "1", "--accept", "lone-replica"
            )
        self.penstock.start()
        self.application = self.penstock.application("shop", send=["*"], pull=["*"])

    def send(self, topic, name="probe"):
        with closing(Sender(self.penstock, self.application)) as sender:
            return sender.send(Message(topic=topic, id=name, body=b"x"))[0]

    def alter(self, change) -> None:
        """By Kafka's own tool, over the listener that needs no login."""
        self.brokers.tool(
            "kafka.admin.ConfigCommand", "--bootstrap-server", self.brokers.bootstrap, "--alter", "--entity-type", "users",
            "--entity-name", SCRAM_USER, *change,
        )  # fmt: skip

    def revoke(self) -> None:
        self.alter(["--delete-config", "SCRAM-SHA-256"])

    def give_back(self) -> None:
        self.alter(["--add-config", f"SCRAM-SHA-256=[password={SCRAM_PASSWORD}]"])

    def ids(self, topic):
        line = ("message", "browse", "-t", topic, "--queue", "0", "--offset", "0", "--limit", "2000")
        return [each["id"] for each in self.penstock.run(*line)]

    def close(self) -> None:
        self.penstock.end()
        self.brokers.stop()


def test_revoked_credentials_are_told_and_nothing_is_lost_once_they_are_given_back(tmp_path):
    require(set(installed()) == set(DRIVERS), f"pip install {' '.join(DRIVERS)}")
    with closing(TwoDrivers(tmp_path)) as both:
        loads = {topic: Load(both, topic) for topic in CLUSTERS}
        for load in loads.values():
            load.wait_for(Code.OK, 20)
        both.revoke()
        for topic in loads:
            until(lambda topic=topic: refused_login(both.send(topic)), f"{topic}: a sentence", SEEN_S_MAX)
        both.give_back()
        for load in loads.values():
            load.wait_for(Code.OK, 50)
        for topic, load in loads.items():
            wanted = stored_ok(load.stop())
            until(lambda topic=topic, wanted=wanted: wanted <= {*both.ids(topic)}, f"{topic}: the copy", SEEN_S_MAX)


def refused_login(result):
    """Whether nothing was stored, and the sentence names the login. Before that, the cluster only does not answer."""
    sentence = result.error or ""
    return result.code == Code.UNAVAILABLE and any(each in sentence for each in ("SASL", "the login as"))
