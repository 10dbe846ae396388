"""Does what the conformance suite asks for: one JSON object per line on stdin and on stdout; clients/conformance/."""

import json
import ssl
import sys
from typing import Any

from penstock_client import Consumer, Message, Options, Producer, PullError


class Driver:
    def open(self, asked: dict[str, Any]) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=asked["tls_ca"]) if asked.get("tls_ca") else None
        how = Options(deadline_ms=asked["deadline_ms"], framed=not asked["buffered"], ssl_context=context)
        who = (asked["app"], asked["key_id"], asked["secret"])
        self.topic = asked["topic"]
        self.producer = Producer(asked["producer"], *who, how)
        self.consumer = Consumer(asked["consumer"], *who, asked["group"], [self.topic], options=how)
        return {}

    def send(self, asked: dict[str, Any]) -> dict[str, Any]:
        messages = [
            Message(topic=self.topic, body=each["body"].encode(), key=each.get("key"), id=each.get("id"))
            for each in asked["messages"]
        ]
        results = self.producer.send_all(messages)
        names = ("code", "id", "queue", "offset", "attempts")
        return {"results": [{name: getattr(result, name) for name in names} for result in results]}

    def pull(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.pulled = self.consumer.pull(asked["max"], wait_ms=asked["wait_ms"])
        deliveries = [(each.message, each.attempt) for each in self.pulled]
        return {
            "deliveries": [{"body": m.body.decode(), "key": m.key, "attempt": attempt} for m, attempt in deliveries]
        }

    def settle(self, asked: dict[str, Any]) -> dict[str, Any]:
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

    def flush(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.consumer.flush()
        return {"refused": self.consumer.acks_refused}

    def close(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.producer.close()
        self.consumer.close()
        return {}


driver = Driver()
for line in sys.stdin:
    asked = json.loads(line)
    try:
        answer = getattr(driver, asked["do"])(asked)
    except PullError as error:
        answer = {"code": error.code}
    print(json.dumps(answer), flush=True)
