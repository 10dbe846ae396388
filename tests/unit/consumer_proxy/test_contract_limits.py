"""The contract's comments name the limits that the proxies keep."""

import re
from pathlib import Path

import pytest

from common.wire.calls import ACKS_MAX, MESSAGES_MAX, POSITIONS_MAX, PULL_TOPICS_MAX
from consumer_proxy.admission.topic_names import PAGE_MAX
from consumer_proxy.settings import Settings
from producer_proxy.requests.calls import REPLY_WAIT_MS_MAX
from producer_proxy.send.send import TIMEOUT_MS_MAX

CONTRACT = Path(__file__).resolve().parents[3] / "thrift"
PULL = Settings()


def comment(file: str, struct: str, name: str) -> str:
    """The comment of a field, in one line."""
    body = re.search(rf"struct {struct} {{\n(.*?)\n}}", (CONTRACT / file).read_text(), re.DOTALL)[1]
    text = re.split(rf"\b{name},\s*//", body)[1]
    return " ".join(re.split(r"\n  \d+: ", text)[0].replace("//", " ").split())


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("topics", f"at most {PULL_TOPICS_MAX}"),
        ("max_messages", f"0..{PULL.messages_max}"),
        ("max_bytes", f"1..{PULL.bytes_max}"),
        ("wait_ms", f"more than {PULL.wait_ms_max} counts as {PULL.wait_ms_max}"),
        ("acks", f"at most {ACKS_MAX}"),
        ("positions", f"at most {POSITIONS_MAX}"),
        ("topics_after", f"At most {PAGE_MAX} per answer"),
        ("invisible_ms", f"{PULL.invisible_ms_min}..{PULL.invisible_ms_max}"),
    ],
)
def test_a_field_of_a_pull_names_its_limit(name, limit):
    assert limit in comment("consumer.thrift", "PullRequest", name)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("messages", f"at most {MESSAGES_MAX}"),
        ("timeout_ms", f"more than {TIMEOUT_MS_MAX} counts as that"),
        ("reply_wait_ms", f"At most {REPLY_WAIT_MS_MAX}"),
    ],
)
def test_a_field_of_a_send_names_its_limit(name, limit):
    assert limit in comment("producer.thrift", "SendRequest", name)
