"""The programs of docs/spark.md, as they stand there, one after the other. Only places are replaced, and the start of
the stream: the page's begins with what comes next."""

import json
import re

import pytest
from penstock_client import Message

from tests.waiting import until

pytestmark = pytest.mark.slow

MESSAGES = 60


@pytest.fixture
def programs(request, penstock_up, producer, credential, tmp_path):
    """The page's blocks of Python: read, stream, write."""
    penstock_up.run("topic", "create", "orders", "payments", "orders-copy", "--queues", "2")
    sent = [Message(topic="orders", id=f"o-{number}", key=str(number), body=b"x") for number in range(MESSAGES)]
    assert all(result.ok for result in producer.send_all(sent))
    page = (request.config.rootpath / "docs" / "spark.md").read_text()
    for written, real in {
        "127.0.0.1:9701": "{}:{}".format(*penstock_up.consumer), "127.0.0.1:9700": "{}:{}".format(*penstock_up.producer),
        "/srv/": f"{tmp_path}/", '"spark.json"': json.dumps(str(credential)),
    }.items():  # fmt: skip
        assert written in page, written
        page = page.replace(written, real)
    return re.findall(r"^```python[^\n]*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_the_programs_of_the_page_read_stream_and_write(spark, options, programs):
    read, stream, write = programs
    names = {"spark": spark}
    exec(read, names)
    assert names["orders"].count() == MESSAGES
    exec(stream.replace('topics="orders",', 'topics="orders", start="earliest",'), names)
    copied = spark.read.format("penstock").options(**options(topics="orders-copy"))
    try:
        until(lambda: copied.load().count() == MESSAGES, "the stream has copied all", 180)
    finally:
        names["query"].stop()
    names["frame"] = spark.range(5).selectExpr("concat('f-', id) AS order_id", "concat('c-', id) AS customer")
    exec(write, names)
    exec(read, names)
    assert names["orders"].count() == MESSAGES + 5
