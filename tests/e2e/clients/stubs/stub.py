"""Sends three messages, pulls and acknowledges them: thriftpy2 and the .thrift files, nothing of ours.

stub.py framed|buffered PRODUCER CONSUMER APP KEY_ID TOPIC GROUP        (secret: PENSTOCK_SECRET)
"""

import hashlib
import hmac
import os
import sys
import time
from pathlib import Path

import thriftpy2
from thriftpy2.rpc import make_client
from thriftpy2.transport import TCyBufferedTransportFactory, TCyFramedTransportFactory

IDL = Path(__file__).resolve().parents[4] / "thrift"
producer = thriftpy2.load(str(IDL / "producer.thrift"), module_name="stub_producer_thrift")
consumer = thriftpy2.load(str(IDL / "consumer.thrift"), module_name="stub_consumer_thrift")
BODIES = [b"one", b"\x00\xff\n\xfe", b""]


def check(held: bool, what: str) -> None:
    if not held:
        sys.exit(f"wrong: {what}")


transport, producer_at, consumer_at, app, key_id, topic, group = sys.argv[1:]
factory = TCyFramedTransportFactory() if transport == "framed" else TCyBufferedTransportFactory()


def connect(service, at: str):
    host, _, port = at.rpartition(":")
    return make_client(service, host, int(port), trans_factory=factory, timeout=15_000)


now_ms = int(time.time() * 1000)
signed = f"penstock/1\n{app}\n{key_id}\n{now_ms}"
credential = producer.message.Credential(
    app=app,
    key_id=key_id,
    issued_at_ms=now_ms,
    signature=hmac.new(os.environ["PENSTOCK_SECRET"].encode(), signed.encode(), hashlib.sha256).digest(),
)

messages = [
    producer.message.Message(topic=topic, key="k", body=body, properties={"number": str(number)})
    for number, body in enumerate(BODIES)
]
messages[2].id = f"{topic}-third"
sender = connect(producer.Producer, producer_at)
results = sender.send(producer.SendRequest(credential=credential, messages=messages)).results
check([result.code for result in results] == [0, 0, 0], f"send codes {results}")
check(len({result.id for result in results}) == 3, "send ids")
check(results[2].id == messages[2].id, "the id that was sent along")
check(len({result.queue for result in results}) == 1, "one key, one queue")
check([result.offset for result in results] == [0, 1, 2], "offsets")

receiver = connect(consumer.Consumer, consumer_at)
pulled = []
while len(pulled) < 3:
    response = receiver.pull(
        consumer.PullRequest(credential=credential, group=group, topics=[topic], max_messages=10, wait_ms=10_000)
    )
    check(response.code == 0 and response.deliveries, f"pull {response}")
    pulled += response.deliveries
for number, (delivery, result) in enumerate(zip(pulled, results, strict=True)):
    message = delivery.message
    check(
        (delivery.id, delivery.queue, delivery.offset, delivery.attempt) == (result.id, result.queue, result.offset, 1),
        f"place of {delivery}",
    )
    check((message.topic, message.key, message.body or b"") == (topic, "k", BODIES[number]), f"content of {delivery}")
    check(message.properties == {"number": str(number)}, f"properties of {delivery}")
    check(abs(delivery.stored_at_ms - now_ms) < 60_000, f"stored_at_ms of {delivery}")

acks = [consumer.Ack(receipt=delivery.receipt) for delivery in pulled]
last = receiver.pull(
    consumer.PullRequest(credential=credential, group=group, topics=[topic], max_messages=0, acks=acks)
)
check((last.code, [ack.code for ack in last.ack_results], last.deliveries) == (0, [0, 0, 0], []), f"last pull {last}")
print("ok")
