"""The driver program of one language, as a case sees it, and the table of the cases.

A case is a function that gets a fake Penstock with two proxies of each kind, which fails on demand, and a client opened
on them. Its sentence is its name in the table of clients/conformance/README.md.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services import thrift_toolchains
from tests.services.fake_penstock import FakePenstock, Fault

TOPIC, GROUP = "t", "g"
STUB = "stub"
STUB_PROGRAM = Path(__file__).resolve().parents[1] / "stubs" / "conformance.py"
ONE_THREAD = ("php",)  # a process has one thread: no workers, no linger, and a batch is sent by the caller


@dataclass(frozen=True)
class Case:
    """`without`: the languages that it does not apply to."""

    check: Callable[[FakePenstock, "Client"], None]
    without: tuple[str, ...]


CASES: dict[str, Case] = {}


def case(sentence: str, without: tuple[str, ...] = ()) -> Callable:
    """A case that generated code alone passes, too."""

    def add(function: Callable[[FakePenstock, "Client"], None]) -> Callable:
        assert sentence not in CASES, sentence
        CASES[sentence] = Case(function, without)
        return function

    return add


def sdk_case(sentence: str, without: tuple[str, ...] = ()) -> Callable:
    """A case about what an SDK adds to generated code."""
    return case(sentence, (STUB, *without))


class Refused(Exception):
    """A call that the client reports as refused."""

    def __init__(self, code: int) -> None:
        super().__init__(f"code {code}")
        self.code = code


class Client:
    """One driver program; each call is one JSON object to it and one from it. Bodies are bytes here and hex there."""

    def __init__(self, language: str) -> None:
        self.language = language
        self._process = subprocess.Popen(
            [sys.executable, STUB_PROGRAM] if language == STUB else thrift_toolchains.program(language, "conformance"),
            env=thrift_toolchains.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._defaults: dict[str, Any] = {}
        self.busiest = 0  # the most handlers at a time in the last run
        self.reasons: list[str | None] = []  # of the results of the last send

    def on(self, fake: FakePenstock) -> "Client":
        return self.at(fake.producer_endpoints, fake.consumer_endpoints, fake.app, fake.key_id, fake.secret)

    def at(
        self, producer: str, consumer: str, app: str, key_id: str, secret: str, topic: str = TOPIC, group: str = GROUP
    ) -> "Client":
        self._defaults = {
            "producer": producer,
            "consumer": consumer,
            "app": app,
            "key_id": key_id,
            "secret": secret,
            "topic": topic,
            "group": group,
            "deadline_ms": 10_000,
            "call_timeout_ms": 3_000,
            "lease_ms": 0,
            "buffered": False,
            "tls_ca": "",
        }
        self.open()
        return self

    def open(self, **changes: Any) -> None:
        self._ask("open", **{**self._defaults, **changes})

    def send(self, *messages: dict[str, Any], reply_wait_ms: int = 0) -> list[dict[str, Any]]:
        """Bodies default to b"x"."""
        sent = [{**each, "body": each.get("body", b"x").hex()} for each in messages]
        results = self._ask("send", messages=sent, reply_wait_ms=reply_wait_ms)["results"]
        self.reasons = [each.pop("reason", None) for each in results]
        return [{**each, "reply": None if each["reply"] is None else bytes.fromhex(each["reply"])} for each in results]

    def one(self, **fields: Any) -> dict[str, Any]:
        (result,) = self.send(fields)
        return result

    def code(self, **fields: Any) -> int:
        return self.one(**fields)["code"]

    def batch(
        self,
        *messages: dict[str, Any],
        linger_ms: int = 60_000,
        bytes: int = 1 << 20,
        count: int = 1_000,
        bytes_max: int = 1 << 25,
        full_wait_ms: int = 10_000,
        flush: bool = False,
        close_ms: int = -1,
    ) -> list[dict[str, Any]]:
        """Sends the messages by a batching producer and waits for their outcomes. With `close_ms` it is closed first,
        with that deadline. The `error` of a message is "full" or "closed"; of the others there is a result.
        """
        sent = [{**each, "body": each.get("body", b"x").hex()} for each in messages]
        how = {"linger_ms": linger_ms, "bytes": bytes, "count": count, "bytes_max": bytes_max}
        answer = self._ask("batch", messages=sent, full_wait_ms=full_wait_ms, flush=flush, close_ms=close_ms, **how)
        return answer["results"]

    def pull(self, most: int = 10, wait_ms: int = 1_000) -> list[dict[str, Any]]:
        pulled = self._ask("pull", max=most, wait_ms=wait_ms)["deliveries"]
        return [{**each, "body": bytes.fromhex(each["body"]), "key": each["key"] or None} for each in pulled]

    def bodies(self, most: int = 10, wait_ms: int = 1_000) -> list[bytes]:
        return [each["body"] for each in self.pull(most, wait_ms)]

    def settle(self, verdict: str, index: int = 0, delay_ms: int = 0, reason: str = "") -> None:
        self._ask("settle", verdict=verdict, index=index, delay_ms=delay_ms, reason=reason)

    def reply(self, body: bytes, index: int = 0) -> None:
        self._ask("reply", body=body.hex(), index=index)

    def run(self, count: int = 1, verdict: str = "done", handle_ms: int = 0, workers: int = 1) -> list[bytes]:
        """Handles so many messages and stops. The bodies, in the order in which their handlers ended."""
        ran = self._ask("run", count=count, verdict=verdict, handle_ms=handle_ms, workers=workers)
        self.busiest = ran.get("busiest", 1)
        return [bytes.fromhex(each) for each in ran["handled"]]

    def flush(self) -> int:
        """The number of acknowledgements that were refused so far."""
        return self._ask("flush")["refused"]

    def told(self) -> list[int]:
        """What the metrics hook was told of: calls, failed calls, sent messages, handled messages."""
        return self._ask("flush")["told"]

    def close(self) -> None:
        self._ask("close")

    def end(self) -> int:
        """Ends the program by the end of its input; its exit code."""
        self._process.stdin.close()
        code = self._process.wait(20)
        self._process.stdout.close()
        return code

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, do: str, **fields: Any) -> dict[str, Any]:
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the driver ended with code {self._process.wait(20)} at {do}"
        answer = json.loads(line)
        if set(answer) == {"code"}:
            raise Refused(answer["code"])
        return answer


def refusal(call: Callable[..., Any], *arguments: Any, **fields: Any) -> int | None:
    """The code that the call is refused with; None: it is not."""
    try:
        call(*arguments, **fields)
    except Refused as refused:
        return refused.code
    return None


def fail_all(fake: FakePenstock, **fault: Any) -> None:
    for proxy in fake.producers + fake.consumers:
        proxy.faults.append(Fault(**fault))


def sent_ids(fake: FakePenstock) -> list[str]:
    return [message.id for proxy in fake.producers for call in proxy.calls for message in call.messages]


def stored(fake: FakePenstock) -> list[Any]:
    return [record.message for record in fake.store.topics.get(TOPIC, [])]
