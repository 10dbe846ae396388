"""Logins of both drivers, and clusters that cannot be reached or do not let one in."""

import importlib.util
import time
from contextlib import closing
from dataclasses import replace

import pytest

from bench.peers.processes import free_ports
from common.contract import Code
from common.kafka.base import END, ProducerOptions, ReaderOptions
from common.kafka.connection import KafkaConnection
from common.kafka.errors import ClusterUnreachable, KafkaRefusal, LoginRefused
from common.kafka.records import Partition
from tests.contract.kafka.exchange import NOW, Exchange
from tests.services import require
from tests.services.kafka import PASSWORD, SCRAM_PASSWORD, SCRAM_USER, USER

OPENERS = ("producer", "reader", "admin")


def opened(driver, what, connection):
    options = {"producer": (ProducerOptions(),), "reader": (ReaderOptions(),), "admin": ()}[what]
    return getattr(driver, what)(connection, *options)


@pytest.fixture
def plain(brokers):
    return KafkaConnection("safe", (brokers.sasl_bootstrap,), "SASL_PLAINTEXT", "PLAIN", USER, PASSWORD)


@pytest.fixture
def tls(brokers, plain):
    return replace(plain, bootstrap=(brokers.tls_bootstrap,), protocol="SASL_SSL", authority_file=brokers.authority)


def passes_a_record(driver, connection, topic):
    with Exchange(driver, connection) as exchange:
        (offset,) = exchange.send(topic, (0, NOW, b"k", connection.protocol.encode())).offsets
        return exchange.read(topic, 1, at=offset)[0][3] == connection.protocol.encode() and exchange.admin().topics()


def test_a_login_by_password_works(driver, plain, new_topic):
    assert passes_a_record(driver, plain, new_topic())


def test_a_login_by_scram_works(driver, plain, new_topic):
    scram = replace(plain, mechanism="SCRAM-SHA-256", user=SCRAM_USER, password=SCRAM_PASSWORD)
    assert passes_a_record(driver, scram, new_topic())


def test_a_login_over_tls_works(driver, tls, new_topic):
    assert passes_a_record(driver, tls, new_topic())


@pytest.mark.parametrize("what", OPENERS)
def test_a_wrong_password_is_a_refused_login_and_the_sentence_has_no_password(driver, plain, what):
    wrong = replace(plain, password="wrong horse", connect_timeout_s=4.0)
    with pytest.raises(LoginRefused) as fault:
        opened(driver, what, wrong)
    assert "safe" in str(fault.value) and "wrong horse" not in str(fault.value) + repr(wrong)


def test_an_untrusted_certificate_is_a_refused_login(driver, tls):
    with pytest.raises(LoginRefused) as fault:
        opened(driver, "producer", replace(tls, authority_file=None, connect_timeout_s=4.0))
    assert "certificate" in str(fault.value)


@pytest.mark.parametrize("what", OPENERS)
def test_a_closed_port_is_unreachable_after_the_time_that_was_given(driver, what):
    address, began = f"127.0.0.1:{free_ports(1)[0]}", time.monotonic()
    with pytest.raises(ClusterUnreachable) as fault:
        opened(driver, what, KafkaConnection("gone", (address,), connect_timeout_s=1.0))
    assert "gone" in str(fault.value) and address in str(fault.value)
    assert 0.9 < time.monotonic() - began < 15.0


def test_one_reachable_broker_of_those_given_is_enough(driver, brokers, new_topic):
    closed = f"127.0.0.1:{free_ports(1)[0]}"
    assert passes_a_record(driver, KafkaConnection("half", (closed, brokers.bootstrap)), new_topic())


def test_a_topic_that_the_user_may_not_use_is_unavailable_and_refused_to_readers(driver, plain, brokers, new_topic):
    require(importlib.util.find_spec("kafka"), "pip install kafka-python")
    topic = new_topic()
    deny(brokers, topic, USER)
    with Exchange(driver, plain) as exchange:
        results = exchange.send(topic, (0,))
        assert results.codes == [int(Code.UNAVAILABLE)] and "TOPIC_AUTHORIZATION_FAILED" in results.sentences[0]
        with pytest.raises(KafkaRefusal):
            reader = exchange.reader({Partition(topic, 0): 0})
            for _ in range(40):
                reader.poll(0.25)
    with closing(driver.admin(plain)) as admin, pytest.raises(KafkaRefusal, match=topic):
        admin.offsets([Partition(topic, 0)], END)


def deny(brokers, topic, user):
    """Nobody but super users may do anything with a topic."""
    from kafka import KafkaAdminClient
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

    admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap)
    pattern = ResourcePattern(ResourceType.TOPIC, topic)
    rule = ACL(f"User:{user}", "*", ACLOperation.ALL, ACLPermissionType.DENY, pattern)
    assert not admin.create_acls([rule])["failed"]
    admin.close()
