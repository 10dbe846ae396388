import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.link import layout
from engine.link.proof import (
    ADMIN_ROLE,
    CONTROLLER_ROLE,
    NONCE_SIZE,
    PROOF_SIZE,
    REPLICA_ROLE,
    client_proof,
    engine_proof,
    transcript,
)
from engine.ops.handshake import Handshake
from engine.ops.peer import PeerState
from engine.ops.roles import LinkKeys

CLUSTER, OPERATORS = b"c" * 32, b"o" * 32
KEYS = LinkKeys(CLUSTER, OPERATORS)
NONCE = "07" * NONCE_SIZE


class Stranger:
    """A peer that records what it is sent."""

    def __init__(self, keys: LinkKeys = KEYS) -> None:
        self.peer_state = PeerState(0)
        self.sent: list[tuple[int, bytes]] = []
        self.closed = ""
        self.trusted = False
        self._handshake = Handshake(keys, lambda: {"log_id": "11"}, lambda count: bytes(count), lambda peer: None)

    def say(self, op: int, payload: bytes) -> tuple[int, bytes]:
        self._handshake.on_request(self, op, 1, payload)
        return self.sent[-1]

    def greet(self, role: str = "test") -> bytes:
        question = json.dumps({"version": layout.VERSION, "role": role, "nonce": NONCE}).encode()
        code, answer = self.say(layout.HELLO, question)
        assert code == layout.OK, answer
        return transcript(question, answer)

    def send_frame(self, op: int, request_id: int, code: int, parts: list[bytes]) -> None:
        self.sent.append((code, b"".join(parts)))

    def trust(self) -> None:
        self.trusted = True

    def close(self, reason: str) -> None:
        self.closed = reason

    def close_when_sent(self) -> None:
        self.closed = "refused"


@pytest.mark.parametrize(("role", "key"), [("test", CLUSTER), (ADMIN_ROLE, OPERATORS)])
def test_both_ends_prove_that_they_know_the_key_of_the_role(role, key):
    peer = Stranger()
    greeting = peer.greet(role)
    assert peer.say(layout.AUTH, client_proof(key, greeting)) == (layout.OK, engine_proof(key, greeting))
    assert (peer.peer_state.authenticated, peer.trusted, peer.closed) == (True, True, "")


@pytest.mark.parametrize(("role", "key"), [("test", OPERATORS), (ADMIN_ROLE, CLUSTER)])
def test_the_key_of_one_role_opens_no_link_of_the_other(role, key):
    peer = Stranger()
    code, sentence = peer.say(layout.AUTH, client_proof(key, peer.greet(role)))
    assert code == layout.UNAUTHENTICATED and b"has another" in sentence and peer.closed
    assert not peer.peer_state.authenticated


def test_an_engine_without_an_administrators_key_takes_no_proof_made_with_an_empty_one():
    peer = Stranger(LinkKeys(CLUSTER))
    code, sentence = peer.say(layout.AUTH, client_proof(b"", peer.greet(ADMIN_ROLE)))
    assert code == layout.UNAUTHENTICATED and b"--admin-key" in sentence


OWN = LinkKeys(CLUSTER, OPERATORS, replica=b"r" * 32, controller=b"m" * 32)


@pytest.mark.parametrize("role", [REPLICA_ROLE, CONTROLLER_ROLE])
def test_the_cluster_key_opens_no_link_of_a_role_that_has_its_own_key_and_the_refusal_names_the_option(role):
    own = getattr(OWN, role)
    peer = Stranger(OWN)
    assert peer.say(layout.AUTH, client_proof(own, peer.greet(role)))[0] == layout.OK
    peer = Stranger(OWN)
    code, sentence = peer.say(layout.AUTH, client_proof(CLUSTER, peer.greet(role)))
    assert code == layout.UNAUTHENTICATED and f"start this process with --{role}-key".encode() in sentence
    peer = Stranger(OWN)
    assert f"another {role} key".encode() in peer.say(layout.AUTH, client_proof(b"x" * 32, peer.greet(role)))[1]


@pytest.mark.parametrize("role", [REPLICA_ROLE, CONTROLLER_ROLE])
def test_an_engine_without_the_keys_of_roles_takes_the_cluster_key_and_says_which_option_it_lacks(role):
    peer = Stranger()
    assert peer.say(layout.AUTH, client_proof(CLUSTER, peer.greet(role)))[0] == layout.OK
    peer = Stranger()
    code, sentence = peer.say(layout.AUTH, client_proof(b"r" * 32, peer.greet(role)))
    assert code == layout.UNAUTHENTICATED and f"started without --{role}-key".encode() in sentence


def test_while_a_cluster_gets_its_keys_an_engine_takes_both_and_proves_itself_by_the_same_one():
    keys = LinkKeys(CLUSTER, OPERATORS, replica=b"r" * 32, also_cluster=True)
    assert keys.by_cluster_key == ["replica", "controller"]
    for key in (b"r" * 32, CLUSTER):
        peer = Stranger(keys)
        greeting = peer.greet(REPLICA_ROLE)
        assert peer.say(layout.AUTH, client_proof(key, greeting)) == (layout.OK, engine_proof(key, greeting))
    assert OWN.by_cluster_key == [] and LinkKeys(CLUSTER, replica=b"r" * 32).by_cluster_key == ["controller"]


@given(st.integers(0, PROOF_SIZE * 8 - 1))
def test_a_proof_with_one_flipped_bit_is_refused(bit):
    peer = Stranger()
    proof = bytearray(client_proof(CLUSTER, peer.greet()))
    proof[bit // 8] ^= 1 << bit % 8
    assert peer.say(layout.AUTH, bytes(proof))[0] == layout.UNAUTHENTICATED


@given(st.binary(max_size=64))
def test_a_greeting_serves_one_attempt(guess):
    peer = Stranger()
    greeting = peer.greet()
    assert peer.say(layout.AUTH, guess)[0] == layout.UNAUTHENTICATED
    peer._handshake.on_request(peer, layout.AUTH, 1, client_proof(CLUSTER, greeting))
    assert peer.closed == "not authenticated" and not peer.trusted


def test_a_link_has_one_greeting_and_another_one_closes_it_without_an_answer():
    peer = Stranger()
    peer.greet()
    question = json.dumps({"version": layout.VERSION, "role": "test", "nonce": NONCE}).encode()
    answers = len(peer.sent)
    peer._handshake.on_request(peer, layout.HELLO, 1, question)
    assert peer.closed == "not authenticated" and len(peer.sent) == answers


def test_the_engines_proof_sent_back_to_it_is_refused():
    peer = Stranger()
    assert peer.say(layout.AUTH, engine_proof(CLUSTER, peer.greet()))[0] == layout.UNAUTHENTICATED


def test_a_proof_for_one_greeting_is_refused_for_another():
    first, second = Stranger(), Stranger()
    greeting = first.greet("producer_proxy")
    second.greet("consumer_proxy")
    assert second.say(layout.AUTH, client_proof(CLUSTER, greeting))[0] == layout.UNAUTHENTICATED


def test_the_engine_computes_no_proof_before_it_has_seen_the_clients():
    peer = Stranger()
    peer.greet()
    assert peer.say(layout.AUTH, b"")[1] == b"AUTH: the engine has another cluster key"


@pytest.mark.parametrize(
    "greeting",
    [
        b"", b"[]", b"{}", b"\xff",
        b'{"version": 1, "role": "test", "nonce": "%s"}' % NONCE.encode(),
        b'{"version": 2, "role": "", "nonce": "%s"}' % NONCE.encode(),
        b'{"version": 2, "role": 7, "nonce": "%s"}' % NONCE.encode(),
        b'{"version": 2, "role": "test"}',
        b'{"version": 2, "role": "test", "nonce": "00"}',
    ],
)  # fmt: skip
def test_a_malformed_greeting_is_refused_with_a_sentence_and_closed(greeting):
    peer = Stranger()
    code, sentence = peer.say(layout.HELLO, greeting)
    assert code == layout.INVALID and sentence.startswith(b"HELLO: ") and peer.closed


def test_any_other_operation_closes_the_connection():
    peer = Stranger()
    peer._handshake.on_request(peer, layout.PULL, 1, b"")
    assert peer.closed == "not authenticated" and not peer.sent
