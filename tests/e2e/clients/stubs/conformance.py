"""Does what the conformance suite asks for by generated code alone: one call each at the first proxy, nothing retried."""

import hashlib
import hmac
import json
import ssl
import sys
import time
from pathlib import Path

import thriftpy2
from thriftpy2.rpc import make_client
from thriftpy2.transport import TCyBufferedTransportFactory, TCyFramedTransportFactory

IDL = Path(__file__).resolve().parents[4] / "thrift"
producer = thriftpy2.load(str(IDL / "producer.thrift"), module_name="stub_producer_thrift")
consumer = thriftpy2.load(str(IDL / "consumer.thrift"), module_name="stub_consumer_thrift")
message = producer.message
VERDICTS = {"done": None, "retry": 1, "reject": 2, "extend": 3}


class Stub:
    def open(self, asked):
        self.asked = asked
        factory = TCyBufferedTransportFactory() if asked["buffered"] else TCyFramedTransportFactory()
        context = ssl.create_default_context(cafile=asked["tls_ca"]) if asked["tls_ca"] else None
        ends = []
        for service, name in ((producer.Producer, "producer"), (consumer.Consumer, "consumer")):
            host, _, port = asked[name].split(",")[0].rpartition(":")
            ends.append(
                make_client(service, host, int(port), trans_factory=factory, timeout=30_000, ssl_context=context)
            )
        self.producer, self.consumer = ends
        self.acks, self.refused = [], 0
        return {}

    def credential(self):
        app, key_id, secret = (self.asked[name] for name in ("app", "key_id", "secret"))
        now_ms = int(time.time() * 1000)
        signed = f"penstock/1\n{app}\n{key_id}\n{now_ms}".encode()
        signature = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
        return message.Credential(app=app, key_id=key_id, issued_at_ms=now_ms, signature=signature)

    def send(self, asked):
        messages = [self.message(**each) for each in asked["messages"]]
        return {"results": [self.shown(each) for each in self.call(messages, asked["reply_wait_ms"])]}

    def message(self, body, times=1, cancel=False, **fields):
        body = bytes.fromhex(body) * times
        return message.Message(topic=self.asked["topic"], body=body, operation=1 if cancel else None, **fields)

    def call(self, messages, reply_wait_ms=None):
        request = producer.SendRequest(credential=self.credential(), messages=messages, reply_wait_ms=reply_wait_ms)
        return self.producer.send(request).results

    def shown(self, result):
        names = ("code", "id", "queue", "offset")
        reply = result.reply and result.reply.body.hex()
        return {name: getattr(result, name) for name in names} | {"attempts": 1, "reply": reply}

    def pull(self, asked):
        request = consumer.PullRequest(
            credential=self.credential(), group=self.asked["group"], topics=[self.asked["topic"]], acks=self.acks,
            max_messages=asked["max"], wait_ms=asked.get("wait_ms"),
            invisible_ms=self.asked["lease_ms"] or None,
        )  # fmt: skip
        response = self.consumer.pull(request)
        if response.code:
            return {"code": response.code}
        self.acks = []
        self.refused += sum(1 for result in response.ack_results if result.code)
        self.pulled = response.deliveries
        return {"deliveries": [delivered(each) for each in response.deliveries]}

    def settle(self, asked):
        verdict, delay_ms = VERDICTS[asked["verdict"]], asked["delay_ms"] or None
        ack = consumer.Ack(receipt=self.pulled[asked["index"]].receipt, verdict=verdict, delay_ms=delay_ms)
        ack.reason = asked["reason"] or None
        self.acks.append(ack)
        return {}

    def reply(self, asked):
        token, body = self.pulled[asked["index"]].reply_token, bytes.fromhex(asked["body"])
        (result,) = self.call([message.Message(topic=self.asked["topic"], body=body, reply_to=token)])
        return {"code": result.code} if result.code else {}

    def flush(self, asked):
        return self.pull({"max": 0}) and {"refused": self.refused}

    def close(self, asked):
        self.producer.close()
        self.consumer.close()
        return {}


def delivered(delivery):
    held = delivery.message
    fields = {"key": held.key, "tag": held.tag, "properties": held.properties, "id": delivery.id}
    body, asked = (held.body or b"").hex(), delivery.reply_token is not None
    return {**fields, "body": body, "attempt": delivery.attempt, "asked": asked}


stub = Stub()
for line in sys.stdin:
    step = json.loads(line)
    print(json.dumps(getattr(stub, step["do"])(step)), flush=True)
