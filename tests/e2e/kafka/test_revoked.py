"""The cluster's user loses its permission for a topic while a plan copies it, and gets it back."""

import importlib.util
import json
from contextlib import closing

import pytest

from common.contract import Code, Message
from common.kafka.base import NewKafkaTopic
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import installed, open_driver
from tests.e2e.kafka.home import Sender
from tests.e2e.running import RunningPenstock
from tests.services import require
from tests.services.kafka import PASSWORD, USER, KafkaBrokers
from tests.waiting import until

PLAN = "name: shop\nrecipe: mirror\ncluster: main\ntopics: [orders]\ngates: {lag_messages: 0}\n"
SEEN_S_MAX = 60.0
DRIVER = "confluent-kafka"
"""The other one cannot tell a topic that its user may not see from one that does not exist."""


class Revocable:
    """A broker with SASL, and a Penstock whose user may be denied the topic `orders`."""

    def __init__(self, folder) -> None:
        self.brokers = KafkaBrokers(folder / "kafka", secure=True).start()
        with closing(open_driver().admin(KafkaConnection("main", (self.brokers.bootstrap,)))) as admin:
            assert admin.create_topics({"orders": NewKafkaTopic(1, 1)}) == {}
            until(lambda: admin.topics(["orders"]), "the topic", 30.0)
        self.penstock = RunningPenstock(folder / "data", "--no-console")
        (folder / "data" / "config").mkdir(parents=True)
        (folder / "password").write_text(PASSWORD)
        self.penstock.run(
            "kafka", "add", "main", "--bootstrap", self.brokers.sasl_bootstrap, "--security", "sasl_plaintext",
            "--driver", DRIVER, "--user", USER, "--password-file", str(folder / "password"),
        )  # fmt: skip
        self.penstock.start()
        (folder / "plan.yaml").write_text(PLAN)
        self.penstock.run("migrate", "plan", str(folder / "plan.yaml"), "--accept", "lone-replica")
        self.penstock.run("migrate", "start", "shop")
        self.sent = self.failed = 0
        self.sender = Sender(self.penstock, self.penstock.application("shop", send=["*"]))

    def send(self, name):
        result = self.sender.send(Message(topic="orders", id=name, body=b"x"))[0]
        self.sent += 1
        self.failed += result.code != Code.OK
        return result

    def set_denied(self, is_denied) -> None:
        """The rule holds on existing connections, too, once the broker has applied it."""
        from kafka import KafkaAdminClient
        from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

        pattern = ResourcePattern(ResourceType.TOPIC, "orders")
        parts = (f"User:{USER}", "*", ACLOperation.ALL, ACLPermissionType.DENY, pattern)
        admin = KafkaAdminClient(bootstrap_servers=self.brokers.bootstrap)
        try:
            if is_denied:
                assert not admin.create_acls([ACL(*parts)])["failed"]
            else:
                admin.delete_acls([ACLFilter(*parts)])
        finally:
            admin.close()

    def ids(self):
        return [
            each["id"]
            for each in self.penstock.run(
                "message", "browse", "-t", "orders", "--queue", "0", "--offset", "0", "--limit", "1000"
            )
        ]

    def status(self):
        """Exit code of `migrate status`, its row, and what it says beside that."""
        done = self.penstock.call("migrate", "status", "shop", "-o", "json")
        return done.returncode, json.loads(done.stdout), done.stderr.decode()

    def close(self) -> None:
        self.penstock.end()
        self.brokers.stop()


@pytest.fixture
def made(tmp_path):
    require(DRIVER in installed() and importlib.util.find_spec("kafka"), "pip install penstock[kafka,kafka-fast]")
    opened = Revocable(tmp_path)
    yield opened
    opened.close()


def test_a_revoked_permission_is_told_in_a_sentence_and_nothing_is_lost_after_it_is_given_again(made):
    answers = {"before": made.send("before")}
    assert answers["before"].code == Code.OK
    until(lambda: made.ids() == ["before"], "the copy", SEEN_S_MAX)
    made.set_denied(True)

    def is_refused():
        name = f"during{len(answers)}"
        answers[name] = made.send(name)
        return answers[name].code != Code.OK

    until(is_refused, "a refused send", SEEN_S_MAX)
    refused = list(answers.values())[-1]
    assert refused.code == Code.UNAVAILABLE and "TOPIC_AUTHORIZATION_FAILED" in refused.error
    code, row, told = made.status()
    assert code == 5 and "topic orders: TOPIC_AUTHORIZATION_FAILED" in told and len(told.splitlines()) == 1
    assert row["step"] == "copying" and "Z (" in row["since"], "where it is, and since when"
    assert (
        row["waits_for"].startswith("positions, which are not known: ") and "AUTHORIZATION_FAILED" in row["waits_for"]
    )
    assert row["waits_for"].endswith("; then for an operator: verify is next")
    made.set_denied(False)
    until(lambda: made.send("after").code == Code.OK, "a send after it", SEEN_S_MAX)
    wanted = {name for name, each in answers.items() if each.code == Code.OK} | {"after"}
    until(lambda: wanted <= {*made.ids()}, "the copy goes on", SEEN_S_MAX)
    ids = made.ids()
    assert len(ids) == len({*ids}) and not {n for n, each in answers.items() if each.code == Code.UNAVAILABLE} & {*ids}
    code, row, _ = made.status()
    assert code == 0 and row["behind"] == 0
    cut_is_refused_for_the_error_rate_until_it_is_accepted(made)


def cut_is_refused_for_the_error_rate_until_it_is_accepted(made) -> None:
    made.penstock.run("migrate", "verify", "shop")
    numbers = f"{made.failed} of {made.sent} sends to orders ("
    refused = made.penstock.call("migrate", "cut", "shop")
    told = refused.stderr.decode().splitlines()[-1]
    assert refused.returncode == 4 and f'plan "shop": {numbers}' in told
    assert told.endswith("wait until they are older, or use --accept error-rate"), told
    status = made.penstock.run("migrate", "status", "shop")
    assert (status["step"], status["failed_sends"][: len(numbers)]) == ("verified", numbers)
    assert made.penstock.run("migrate", "cut", "shop", "--accept", "error-rate")["step"] == "cut"
