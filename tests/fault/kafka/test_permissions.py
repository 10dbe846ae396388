"""Kafka's access lists change while topics are copied, written and read: what the bridge's user may do is taken from it
and given back. In each state the loss is told, and afterwards every part goes on by itself: nothing is lost or doubled.
"""

import time
from collections import Counter
from contextlib import closing, contextmanager

import pytest

from common.config import open_store
from common.contract import Code, Message
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import installed, open_driver
from tests.e2e.kafka.home import Puller, Sender
from tests.e2e.running import RunningPenstock
from tests.fault.kafka.test_outages import Load
from tests.fault.kafka.test_shapes_and_positions import FOLLOWED_S_MAX, Changing
from tests.services import require
from tests.services.kafka import SCRAM_PASSWORD, SCRAM_USER, KafkaBrokers
from tests.waiting import until

GROUP = "permitted"
REFUSED_S_MAX = 20.0
"""Far below the time after which a cluster counts as away."""


class Permitted(Changing):
    """A broker that checks access lists, and a Penstock whose bridge is a user of it, by a password."""

    def __init__(self, folder) -> None:
        require("confluent-kafka" in installed(), "pip install confluent-kafka")  # it changes access lists
        from confluent_kafka.admin import AdminClient

        self.folder = folder
        self.brokers = KafkaBrokers(folder / "kafka", secure=True).start()
        self.connection = KafkaConnection("main", (self.brokers.bootstrap,))
        self.hand = AdminClient({"bootstrap.servers": self.brokers.bootstrap})
        self.admin = open_driver().admin(self.connection)
        self.penstock = RunningPenstock(folder / "data", "--no-console")
        (folder / "data" / "config").mkdir(parents=True)
        (folder / "password").write_text(SCRAM_PASSWORD)
        self.penstock.run(
            "kafka", "add", "main", "--bootstrap", self.brokers.sasl_bootstrap, "--security", "sasl_plaintext",
            "--sasl-mechanism", "SCRAM-SHA-256", "--driver", "confluent-kafka", "--user", SCRAM_USER,
            "--password-file", str(folder / "password"),
        )  # fmt: skip
        self.penstock.start()
        for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID"):
            self.add(self.rule(kind, "*", "ALL", "ALLOW"))
        self.application = self.penstock.application("shop", send=["*"], pull=["*"])

    def rule(self, kind, name, operation, permission):
        from confluent_kafka import admin

        return admin.AclBinding(
            admin.ResourceType[kind], name, admin.ResourcePatternType.LITERAL, f"User:{SCRAM_USER}", "*",
            admin.AclOperation[operation], admin.AclPermissionType[permission],
        )  # fmt: skip

    def add(self, rule) -> None:
        for done in self.hand.create_acls([rule]).values():
            done.result(30)

    @contextmanager
    def denied(self, kind, name, operation="ALL"):
        """The bridge's user may not do this with the topic, group or transactional id of that name."""
        from confluent_kafka import admin

        rule = self.rule(kind, name, operation, "DENY")
        self.add(rule)
        try:
            yield
        finally:
            parts = (rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host, rule.operation)
            for done in self.hand.delete_acls([admin.AclBindingFilter(*parts, rule.permission_type)]).values():
                done.result(30)

    def refused(self, command, topic):
        """A command is refused, as Kafka refuses, and sets no fence."""
        done = self.penstock.call("migrate", command, topic)
        told = done.stderr.decode()
        assert done.returncode == 5 and "AUTHORIZATION_FAILED" in told and " fence: " not in told, told
        return told

    def plan_double_read(self, topic, group):
        """A topic that a group with an order reads on both sides."""
        self.penstock.run("group", "create", group, "--order", "key")
        self.create(topic)
        path = self.folder / f"{topic}.yaml"
        path.write_text(
            f"name: {topic}\nrecipe: double_read\ncluster: main\ntopics: [{topic}]\ngroups: [{group}]\n"
            "gates: {error_rate: 1}\nlimits: {fence_s: 60, soak_hours: 0}\n"
        )
        self.migrate("plan", str(path), "--accept", "lone-replica")
        self.migrate("start", topic)

    def given_up(self, command, topic, change) -> str:
        """What a command tells that has set its fence when a change begins, and has given up and lifted it by the change."""
        running, told = self.begin(command, topic), []
        for line in running.stderr:
            told.append(line)
            if f"{command}: fenced_everywhere" in line:
                break
        with change():
            told += running.stderr.readlines()
            assert running.wait(FOLLOWED_S_MAX) != 0, told
            with closing(open_store((self.penstock.data / "config").as_uri())) as store:
                assert "fence" not in store.get("topic", topic).value, told
        return "".join(told)

    def pull_until(self, topic, group, is_all):
        """Have the group get, and acknowledge, the messages of which that is true."""
        found = []
        with closing(Puller(self, group)) as puller:
            until(
                lambda: found.extend(each.message.id for each in puller.pull(topic)) or is_all(found), "all", FOLLOWED_S_MAX
            )  # fmt: skip
            puller.pull(topic)

    @contextmanager
    def killed(self):
        """The broker is killed, and started again at the end."""
        self.brokers.kill(1)
        yield
        self.brokers.restart(1)

    def wait_told(self, topic, *names):
        """Wait until /readyz of one of these processes, or of the bridge, tells that the topic stands."""
        words = "AUTHORIZATION_FAILED", "does not exist there"  # what its user may not see, one driver does not know

        def is_told():
            notes = "".join(self.notes(name) for name in names or ("kafka_bridge",))
            return topic in notes and any(each in notes for each in words)

        until(is_told, f"/readyz tells of {topic}", FOLLOWED_S_MAX)

    def send_until_refused(self, topic):
        """Send until an answer is Kafka's refusal; returns the ids of what was stored before."""
        stored = []

        def is_refused():
            with closing(Sender(self.penstock, self.application)) as sender:
                name = f"probe{len(stored)}"
                result = sender.send(Message(topic=topic, id=name, key=name, body=b"x"))[0]
            if result.code == Code.OK:
                stored.append(name)
            return result.code == Code.UNAVAILABLE and "Topic authorization failed" in result.error

        until(is_refused, "a refusal by Kafka's word", FOLLOWED_S_MAX)
        return stored


@pytest.fixture(scope="module")
def permitted(tmp_path_factory):
    made = Permitted(tmp_path_factory.mktemp("permitted"))
    yield made
    made.close()


@pytest.mark.parametrize("operation", ["ALL", "READ"])
def test_a_mirror_that_may_not_read_stands_with_a_sentence_and_goes_on(permitted, operation):
    topic = f"mirror-{operation.lower()}"
    permitted.plan(topic)
    wanted = permitted.produce(topic, "before", 20)
    until(lambda: permitted.engine_ids(topic) == sorted(wanted), "the copy", FOLLOWED_S_MAX)
    with permitted.denied("TOPIC", topic, operation):
        permitted.wait_told(topic)
        wanted += permitted.produce(topic, "denied", 20)
        if operation == "ALL":
            permitted.refused("verify", topic)
    permitted.way(topic, "verify", "cut")
    assert permitted.engine_ids(topic) == sorted(wanted)


@pytest.mark.parametrize("operation", ["ALL", "WRITE"])
def test_a_home_in_kafka_that_may_not_be_written_refuses_and_takes_messages_again(permitted, operation):
    topic = f"home-{operation.lower()}"
    permitted.create(topic)
    permitted.penstock.run(
        "topic", "create", topic, "--home", "kafka:main", "--queues", "1", "--accept", "lone-replica"
    )
    load = Load(permitted, topic)
    load.wait_for(Code.OK, 20)
    with permitted.denied("TOPIC", topic, operation):
        load.wait_for(Code.UNAVAILABLE, 20)
        permitted.send_until_refused(topic)
    load.wait_for(Code.OK, 20)
    codes = load.stop()
    found = Counter(permitted.kafka_ids(topic))
    assert {name for name, code in codes.items() if code == Code.OK} <= {*found}
    refused = {name for name, code in codes.items() if code not in (Code.OK, Code.TIMEOUT, Code.DUPLICATE)}
    assert not refused & {*found}, "not stored is a promise"
    assert {*found.values()} == {1} or load.again


@pytest.mark.parametrize("kind", ["TOPIC", "GROUP", "TRANSACTIONAL_ID"])
def test_a_copy_back_that_may_not_write_stands_with_a_sentence_and_goes_on(permitted, kind):
    topic = f"back-{kind.lower()}"
    permitted.plan(topic)
    sent = permitted.send(topic, "before", 10)
    permitted.way(topic, "verify", "cut", "soak")
    sent += permitted.send(topic, "own", 10)
    until(lambda: permitted.row(topic)["behind_out"] == 0, "the copy back", FOLLOWED_S_MAX)
    name = {"TOPIC": topic, "GROUP": f"penstock.copy.{topic}", "TRANSACTIONAL_ID": f"penstock.copy.{topic}.{topic}"}[
        kind
    ]
    with permitted.denied(kind, name, "WRITE" if kind != "GROUP" else "ALL"):
        sent += permitted.send(topic, "denied", 10)
        permitted.wait_told(topic)
        if kind == "GROUP":
            for command in ("status", "rollback"):
                began = time.monotonic()
                assert f"group {name}: GROUP_AUTHORIZATION_FAILED" in permitted.refused(command, topic)
                assert time.monotonic() - began < REFUSED_S_MAX
        rolling = permitted.begin("rollback", topic)
    assert rolling.wait(FOLLOWED_S_MAX) == 0, rolling.stderr.read()
    sent += permitted.send(topic, "after", 10)
    permitted.wait_same(topic, sent)


@pytest.mark.parametrize("operation", ["ALL", "WRITE"])
def test_a_dual_write_whose_secondary_may_not_be_written_waits_in_the_journal(permitted, operation):
    topic = f"dual-{operation.lower()}"
    permitted.plan(topic, "double_write")
    sent = permitted.send(topic, "before", 10)
    permitted.way(topic, "verify")
    with permitted.denied("TOPIC", topic, operation):  # Kafka is the home
        sent += permitted.send_until_refused(topic)
    sent += permitted.send(topic, "home", 10)
    permitted.way(topic, "cut")
    with permitted.denied("TOPIC", topic, operation):
        sent += permitted.send(topic, "denied", 10)
        permitted.wait_told(topic, "producer_proxy")
        rolling = permitted.begin("rollback", topic)
        sent += permitted.send(topic, "meanwhile", 10)
    assert rolling.wait(FOLLOWED_S_MAX) == 0, rolling.stderr.read()
    sent += permitted.send(topic, "after", 10)
    permitted.wait_same(topic, sent)


@pytest.mark.parametrize("kind", ["TOPIC", "GROUP"])
def test_a_double_read_that_may_not_read_stands_with_a_sentence_and_goes_on(permitted, kind):
    topic, group = f"read-{kind.lower()}", f"{GROUP}-{kind.lower()}"
    permitted.plan_double_read(topic, group)
    puller = Puller(permitted, group)
    sent = permitted.produce(topic, "before", 20)
    got = [each.message.id for each in puller.take(topic, 20)]
    with permitted.denied(kind, topic if kind == "TOPIC" else group, "READ"):
        until(lambda: topic in permitted.notes() or group in permitted.notes(), "/readyz tells", FOLLOWED_S_MAX)
        sent += permitted.produce(topic, "denied", 20)
        got += [each.message.id for each in puller.pull(topic)]
        assert "what the groups have to read " in permitted.refused("verify", topic)
    sent += permitted.produce(topic, "after", 20)
    until(
        lambda: got.extend(each.message.id for each in puller.pull(topic)) or {*got} >= {*sent}, "all", FOLLOWED_S_MAX
    )  # fmt: skip
    assert sorted(got) == sorted(sent)
    puller.close()


@pytest.mark.parametrize(
    ("recipe", "change"),
    [
        ("mirror", "permission"),
        pytest.param("double_write", "permission", marks=pytest.mark.slow),
        pytest.param("double_read", "permission", marks=pytest.mark.slow),
        pytest.param("mirror", "kill", marks=pytest.mark.slow),
        pytest.param("double_write", "kill", marks=pytest.mark.slow),
        pytest.param("double_read", "kill", marks=pytest.mark.slow),
    ],
)
def test_what_fails_in_kafka_behind_a_fence_lifts_it_and_the_command_is_given_again(permitted, recipe, change):
    topic, group = f"fenced-{recipe.replace('_', '-')}-{change}", f"{GROUP}-{change}"
    sent = []

    def changed():
        return permitted.killed() if change == "kill" else permitted.denied("TOPIC", topic)

    def is_sent(found):
        """A message is sent again after an outcome that is not known, as of a broker that is killed."""
        return sorted(found) == sorted(sent) or (change == "kill" and {*found} == {*sent})

    if recipe == "double_read":
        permitted.plan_double_read(topic, group)
    else:
        permitted.plan(topic, recipe)
    sent += permitted.send(topic, "before", 10)
    permitted.migrate("verify", topic)
    told = permitted.given_up("cut", topic, changed)
    assert change == "kill" or "AUTHORIZATION_FAILED" in told
    sent += permitted.send(topic, "between", 10)
    permitted.migrate("cut", topic)
    sent += permitted.send(topic, "moved", 10)
    if recipe == "double_read":
        permitted.pull_until(topic, group, is_sent)
    told = permitted.given_up("rollback", topic, changed)
    assert change == "kill" or "AUTHORIZATION_FAILED" in told
    sent += permitted.send(topic, "again", 10)
    if recipe == "double_read":
        permitted.pull_until(topic, group, lambda found: {*found} == {*sent[-10:]})
    permitted.migrate("rollback", topic)
    if recipe != "double_read":
        until(
            lambda: permitted.engine_ids(topic) == permitted.kafka_ids(topic) and is_sent(permitted.kafka_ids(topic)),
            "equal sides", FOLLOWED_S_MAX,
        )  # fmt: skip
