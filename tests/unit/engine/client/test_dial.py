import json
import socket
import threading

import pytest

from engine.client.dial import dial
from engine.link import layout
from engine.link.errors import LinkError
from engine.link.proof import client_proof, transcript

KEY = b"k" * 32


class FakeEngine:
    """Answers HELLO and AUTH without the key: `prove` makes its proof from (the client's proof, the greeting)."""

    def __init__(self, prove, **said) -> None:
        self._prove, self._said = prove, said
        self.payloads = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        sock, _ = self._listener.accept()
        with sock, sock.makefile("rb") as file:
            answer = json.dumps(
                {"version": layout.VERSION, "log_id": "00", "broker_group": "main", "nonce": "00" * 16, **self._said}
            ).encode()
            while head := file.read(layout.HEADER_SIZE):
                size, op, _, _, request_id, _ = layout.HEADER.unpack(head)
                payload = file.read(size + 4 - layout.HEADER_SIZE)
                self.payloads.append(payload)
                if op == layout.AUTH:
                    answer = self._prove(payload, transcript(self.payloads[0], answer))
                sock.sendall(layout.frame(op, request_id, answer))

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)


@pytest.mark.parametrize(
    "prove",
    [
        pytest.param(lambda proof, greeting: b"", id="no proof"),
        pytest.param(lambda proof, greeting: proof, id="the client's proof sent back"),
        pytest.param(lambda proof, greeting: client_proof(KEY, greeting), id="the client's proof made anew"),
        pytest.param(lambda proof, greeting: bytes(32), id="zeros"),
    ],
)
def test_an_engine_that_does_not_prove_that_it_knows_the_key_is_refused(prove):
    engine = FakeEngine(prove)
    with pytest.raises(LinkError, match="does not prove that it knows the key"):
        dial(engine.address, KEY, role="producer_proxy")
    engine.close()
    assert len(engine.payloads) == 2, "nothing follows AUTH"


def test_an_engine_of_another_link_version_is_refused_before_anything_is_proved():
    engine = FakeEngine(lambda proof, greeting: b"", version=1)
    with pytest.raises(LinkError, match="link version 1, this version needs 2"):
        dial(engine.address, KEY, role="producer_proxy")
    engine.close()
    assert len(engine.payloads) == 1


def test_two_greetings_never_carry_the_same_nonce():
    nonces = set()
    for _ in range(3):
        engine = FakeEngine(lambda proof, greeting: b"")
        with pytest.raises(LinkError):
            dial(engine.address, KEY, role="producer_proxy")
        engine.close()
        nonces.add(json.loads(engine.payloads[0])["nonce"])
    assert len(nonces) == 3
