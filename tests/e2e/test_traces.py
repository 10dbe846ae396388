"""Traces: a producer's `traceparent` over send, append, delivery and acknowledgement, at a real OTLP receiver."""

import re
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from penstock_client import Consumer, Message, Producer

from common.contract import Code
from common.tracing.exporting import SDK_QUEUE_MAX
from common.tracing.records import QUEUE_MAX
from producer_proxy.send.tracing import SPANS_PER_CALL_MAX
from tests.services.zookeeper import free_port
from tests.waiting import until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "country": "IT"}
OF_MANY = TRACE.replace("4", "6")
SAMPLED_OF_MANY = {"traceparent": f"00-{OF_MANY}-{PARENT}-01"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}


class Collector:
    """Receives OTLP over HTTP, and keeps the spans by name."""

    def __init__(self, port):
        self.spans, self.services = [], set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(self.path, ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, path, request):
        assert path == "/v1/traces"
        for resource in request.resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            self.services.add(names["service.name"])
            self.spans += [span for scope in resource.scope_spans for span in scope.spans]

    def of(self, trace_id):
        return {span.name: span for span in self.spans if span.trace_id.hex() == trace_id}

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def up(penstock_factory, port):
    """Both proxies trace; the collector comes with the fixture of its name."""
    url = f"http://127.0.0.1:{port}"
    made = penstock_factory(
        "--no-console", environment={f"PENSTOCK_{kind}_PROXY_TRACES": url for kind in ("PRODUCER", "CONSUMER")}
    )
    made.run("topic", "create", "orders", "--queues", "1", "--durability", "memory")
    made.run("topic", "create", "many", "--durability", "memory")
    return made


@pytest.fixture(scope="module")
def shop(up):
    return up.application("shop", send=["*"], pull=["*"])


@pytest.fixture(scope="module")
def collector(port):
    made = Collector(port)
    yield made
    made.close()


def metrics(up):
    with urllib.request.urlopen(f"http://127.0.0.1:{up.facts['ops']['producer_proxy']}/metrics", timeout=10) as answer:
        return answer.read().decode()


def texts(span):
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def test_a_collector_that_is_away_costs_its_spans_and_nothing_else(up, shop):
    slowest_s, count = 0.0, 5_000
    with Producer([up.producer], *shop) as producer:
        for _ in range(count // 100):
            began = time.monotonic()
            results = producer.send_all([Message("many", properties=SAMPLED_OF_MANY) for _ in range(100)])
            slowest_s = max(slowest_s, time.monotonic() - began)
            assert {result.code for result in results} == {Code.OK}
    assert slowest_s < 2.0  # the queues are full: what comes is left out, and nobody waits for an exporter
    told = metrics(up)
    assert 'penstock_trace_spans_total{outcome="sent"} 0.0' in told
    (lost,) = re.findall(r'^penstock_trace_spans_total\{outcome="lost"\} (.*)$', told, re.M)
    assert float(lost) >= 2 * count - QUEUE_MAX - SDK_QUEUE_MAX


def test_what_waits_is_sent_once_the_collector_is_back(up, shop, collector):
    until(lambda: "penstock_trace_spans_waiting 0.0" in metrics(up), "the queue is empty", 60)
    assert set(collector.of(OF_MANY)) == {"send many", "append many"}
    assert len(collector.spans) > QUEUE_MAX - 2 * SPANS_PER_CALL_MAX
    assert f'penstock_trace_spans_total{{outcome="sent"}} {len(collector.spans)}.0' in metrics(up)


def test_one_trace_has_the_send_the_append_the_delivery_and_its_acknowledgement(up, shop, collector):
    with Producer([up.producer], *shop) as producer, Consumer([up.consumer], *shop, "billing", ["orders"]) as consumer:
        ids = []
        for properties in (None, UNSAMPLED, SAMPLED):
            sent = producer.send(Message("orders", body=b"b" * 100, properties=properties))
            ids.append(sent.id)
        deliveries = []
        until(lambda: deliveries.extend(consumer.pull(wait_ms=1_000)) or len(deliveries) == 3, "all come")
        for delivery in deliveries:
            consumer.done(delivery)
        consumer.flush()
    assert deliveries[2].message.properties == SAMPLED  # stored as these very bytes
    spans = until(lambda: len(found := collector.of(TRACE)) == 4 and found, "the collector has the trace")
    send, append, deliver, acknowledge = (
        spans[f"{verb} orders"] for verb in ("send", "append", "deliver", "acknowledge")
    )
    assert send.parent_span_id.hex() == deliver.parent_span_id.hex() == PARENT
    assert (append.parent_span_id, acknowledge.parent_span_id) == (send.span_id, deliver.span_id)
    assert send.start_time_unix_nano <= append.start_time_unix_nano < append.end_time_unix_nano
    assert append.end_time_unix_nano <= send.end_time_unix_nano
    assert deliver.end_time_unix_nano < acknowledge.end_time_unix_nano
    assert texts(send)["messaging.message.id"] == texts(deliver)["messaging.message.id"] == sent.id
    assert (texts(append)["penstock.offset"], texts(acknowledge)["penstock.verdict"]) == (2, "DONE")
    assert texts(acknowledge)["penstock.code"] == "OK" and texts(deliver)["messaging.consumer.group.name"] == "billing"
    assert not {texts(each).get("messaging.message.id") for each in collector.spans} & set(
        ids[:2]
    )  # they are not traced
    assert collector.services == {"penstock-producer-proxy", "penstock-consumer-proxy"}


def test_a_refused_send_is_traced_with_its_code_and_a_wrong_traceparent_is_no_fault(up, shop, collector):
    other = TRACE.replace("4", "5")
    with Producer([up.producer], *shop) as producer:
        refused = producer.send_all(
            [Message("unknown", properties={"traceparent": f"00-{other}-{PARENT}-01"})], deadline_ms=500
        )[0]
        for text in ("", "x" * 55, f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-{PARENT}-01"):
            assert producer.send(Message("orders", properties={"traceparent": text})).code == Code.OK
    assert refused.code == Code.UNKNOWN_TOPIC
    span = until(lambda: collector.of(other).get("send unknown"), "the refused send comes")
    assert span.status.code == span.status.STATUS_CODE_ERROR and texts(span)["penstock.code"] == "UNKNOWN_TOPIC"
    assert len(collector.of(TRACE)) == 4
