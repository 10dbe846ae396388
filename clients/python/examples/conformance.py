"""Does what the conformance suite asks for: one JSON object per line on stdin and on stdout; clients/conformance/."""

import json
import ssl
import sys
import threading
import time
from concurrent.futures import Future
from typing import Any

from penstock_client import (
    Batching,
    BatchingProducer,
    ClosedError,
    Consumer,
    ContractError,
    Delivery,
    FullError,
    Message,
    Metrics,
    Options,
    Producer,
    PullError,
    Result,
    SendError,
    Verdict,
)

Fields = dict[str, Any]


class Told(Metrics):
    """Counts what the hook is told: calls, failed calls, sent messages, handled messages."""

    def __init__(self) -> None:
        self.counts = [0, 0, 0, 0]

    def call(self, method: str, endpoint: str, took_s: float, failure: Exception | None) -> None:
        self.counts[0] += 1
        self.counts[1] += failure is not None

    def sent(self, result: Any) -> None:
        self.counts[2] += 1

    def handled(self, delivery: Delivery, verdict: int, took_s: float) -> None:
        self.counts[3] += 1


class Driver:
    def open(self, asked: Fields) -> Fields:
        context = ssl.create_default_context(cafile=asked["tls_ca"]) if asked["tls_ca"] else None
        self.told = Told()
        how = Options(
            deadline_ms=asked["deadline_ms"],
            call_timeout_ms=asked["call_timeout_ms"],
            framed=not asked["buffered"],
            ssl_context=context,
            metrics=self.told,
        )
        who = (asked["app"], asked["key_id"], asked["secret"])
        self.topic = asked["topic"]
        self.producer = Producer(asked["producer"], *who, how)
        lease_ms = asked["lease_ms"] or None
        self.consumer = Consumer(
            asked["consumer"], *who, asked["group"], [self.topic], invisible_ms=lease_ms, options=how
        )
        return {}

    def send(self, asked: Fields) -> Fields:
        messages = [self.message(**each) for each in asked["messages"]]
        results = self.producer.send_all(messages, reply_wait_ms=asked["reply_wait_ms"] or None)
        names = ("code", "id", "queue", "offset", "attempts")
        shown = [{name: getattr(each, name) for name in names} for each in results]
        return {
            "results": [
                {**fields, "reply": each.reply and each.reply.body.hex(), "reason": each.error}
                for fields, each in zip(shown, results, strict=True)
            ]
        }

    def batch(self, asked: Fields) -> Fields:
        names = ("linger_ms", "bytes", "bytes_max", "full_wait_ms")
        how = Batching(messages=asked["count"], **{name: asked[name] for name in names})
        batching = BatchingProducer(self.producer, how)
        taken = [self.taken(batching, each) for each in asked["messages"]]
        if asked["flush"]:
            batching.flush()
        if asked["close_ms"] >= 0:
            batching.close(asked["close_ms"])
        results = [outcome(each) for each in taken]
        batching.close()
        return {"results": results}

    def taken(self, batching: BatchingProducer, given: Fields) -> Future[Result] | None:
        try:
            return batching.send(self.message(**given))
        except FullError:
            return None

    def message(self, body: str, times: int = 1, cancel: bool = False, **fields: Any) -> Message:
        body_bytes = bytes.fromhex(body) * times
        return Message(topic=self.topic, body=body_bytes, operation=1 if cancel else None, **fields)

    def pull(self, asked: Fields) -> Fields:
        self.pulled = self.consumer.pull(asked["max"], wait_ms=asked["wait_ms"])
        return {"deliveries": [shown(each) for each in self.pulled]}

    def settle(self, asked: Fields) -> Fields:
        delivery = self.pulled[asked["index"]]
        match asked["verdict"]:
            case "done":
                self.consumer.done(delivery)
            case "retry":
                self.consumer.retry(delivery, asked["delay_ms"], asked["reason"])
            case "reject":
                self.consumer.reject(delivery, asked["reason"])
            case "extend":
                self.consumer.extend(delivery, asked["delay_ms"])
        return {}

    def reply(self, asked: Fields) -> Fields:
        self.producer.reply(self.pulled[asked["index"]], bytes.fromhex(asked["body"]))
        return {}

    def run(self, asked: Fields) -> Fields:
        handled: list[str] = []
        stop, busy, counting = threading.Event(), [0, 0], threading.Lock()

        def handle(delivery: Delivery) -> int:
            with counting:
                busy[0] += 1
                busy[1] = max(busy)
            time.sleep(asked["handle_ms"] / 1000)
            with counting:
                busy[0] -= 1
                handled.append((delivery.message.body or b"").hex())
                if len(handled) == asked["count"]:
                    stop.set()
            if asked["verdict"] == "fail":
                raise ValueError("the handler failed")
            if asked["verdict"] == "fault":
                return "no verdict"
            return Verdict.REJECT if asked["verdict"] == "reject" else Verdict.DONE

        self.consumer.run(handle, stop, workers=asked["workers"])
        return {"handled": handled, "busiest": busy[1]}

    def flush(self, asked: Fields) -> Fields:
        self.consumer.flush()
        return {"refused": self.consumer.acks_refused, "told": self.told.counts}

    def close(self, asked: Fields) -> Fields:
        self.producer.close()
        self.consumer.close()
        return {}


def outcome(taken: Future[Result] | None) -> Fields:
    if taken is None:
        return {"error": "full"}
    try:
        result = taken.result()
    except ClosedError:
        return {"error": "closed"}
    except SendError as error:
        result = error.result
    return {"code": result.code, "id": result.id, "attempts": result.attempts}


def shown(delivery: Delivery) -> Fields:
    message = delivery.message
    return {
        "body": (message.body or b"").hex(),
        "key": message.key,
        "tag": message.tag,
        "properties": message.properties,
        "id": delivery.id,
        "attempt": delivery.attempt,
        "asked": delivery.reply_token is not None,
    }


driver = Driver()
for line in sys.stdin:
    asked = json.loads(line)
    try:
        answer = getattr(driver, asked["do"])(asked)
    except PullError as error:
        answer = {"code": error.code}
    except SendError as error:
        answer = {"code": error.result.code}
    except ContractError:
        answer = {"code": -1}
    print(json.dumps(answer), flush=True)
