"""Messages as lines of output, durations of options, and the messages that `penstock send` makes."""

import io
import json
from types import SimpleNamespace

import click
import pytest

from common.contract import Message
from penstock.commands import send_source
from penstock.commands.send_source import MESSAGES_MAX, MessagePattern, SendPace, batches, of_lines, one_body, repeated
from penstock.terminal.exits import CommandError
from penstock.terminal.figures import duration, rate, size
from penstock.terminal.message_lines import LINES, ShownMessage, parse_format
from penstock.terminal.times import DurationType

SHOWN = ShownMessage(
    Message(topic="orders", body="zwölf".encode(), key="k", tag="new", properties={"a": "1", "b": "2"}),
    3, 17, "id-1", 1_795_255_200_123, 2,
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("%k %v", "k zwölf\n"),
        ("%t/%p@%o %i %g %a", "orders/3@17 id-1 new 2\n"),
        ("%S %K %T %d", "6 1 1795255200123 2026-11-21T10:00:00.123Z\n"),
        ("%h%%", "a=1,b=2%\n"),
        ("%s\\n", "zwölf\n"),
        ("%s\\0", "zwölf\0"),
        ("\\t%k\\\\\\x41", "\tk\\A\n"),
        ("plain ü", "plain ü\n"),
    ],
)
def test_a_format_has_kcats_letters_and_its_line_end(text, line):
    assert parse_format(text)(SHOWN).decode() == line


def test_a_message_without_a_key_has_length_minus_1_as_in_kcat():
    assert parse_format("[%k] %K")(SHOWN._replace(message=Message(topic="t"))) == b"[] -1\n"


@pytest.mark.parametrize(("text", "said"), [("%z", "%z means nothing"), ("\\q", "means nothing"), ("100%", "write %%")])
def test_a_format_that_means_nothing_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        parse_format(text)


def test_json_has_the_attempt_only_of_a_delivery_and_bytes_in_base64():
    assert json.loads(LINES["json"](SHOWN))["attempt"] == 2
    stored = json.loads(LINES["json"](SHOWN._replace(attempt=0, message=Message(topic="t", body=b"\xff"))))
    assert "attempt" not in stored and stored["body_base64"] == "/w=="


@pytest.mark.parametrize(
    ("kind", "text", "millis"),
    [
        (DurationType(), "250ms", 250),
        (DurationType(), "5s", 5_000),
        (DurationType(), "1.5m", 90_000),
        (DurationType(), "2h", 7_200_000),
        (DurationType(), "3d", 259_200_000),
        (DurationType(bare="ms"), "700", 700),
        (DurationType(bare="s"), "0.5", 500),
    ],
)
def test_a_duration_is_a_number_with_a_unit(kind, text, millis):
    assert kind.convert(text, None, None) == millis


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (DurationType(), "5", "such as 250ms"),
        (DurationType(), "-1s", "such as 250ms"),
        (DurationType(), "soon", "such as 250ms"),
        (DurationType(100, 600_000), "11m", "use 100ms to 10m"),
        (DurationType(0, 30_000), "31s", "use 0s to 30s"),
    ],
)
def test_a_duration_that_is_none_or_out_of_range_is_refused_with_the_rule(kind, text, said):
    with pytest.raises(click.BadParameter, match=said):
        kind.convert(text, None, None)


def test_figures_are_said_in_one_way():
    assert [duration(each) for each in (0.31, 42, 600, 5_400, 864_000, None)] == [
        "0.3s",
        "42s",
        "10m",
        "1.5h",
        "10d",
        "-",
    ]
    assert [size(each) for each in (512, 61.9 * 2**20, 2**30 * 70, None)] == ["512 B", "61.9 MiB", "70.0 GiB", "-"]
    assert [rate(each) for each in (0, 0.42, 12.3, 1_234.5, None)] == ["0", "0.4", "12", "1,234", "-"]


@pytest.fixture
def stdin(monkeypatch):
    def set_it(data: bytes, is_terminal: bool = False) -> None:
        made = SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(data)), isatty=lambda: is_terminal)
        monkeypatch.setattr(send_source.sys, "stdin", made)

    return set_it


PATTERN = MessagePattern("orders", None, None, None)


def test_an_empty_stdin_is_refused_in_words_unless_an_empty_message_is_asked_for(stdin):
    stdin(b"")
    with pytest.raises(CommandError, match="stdin is empty: give BODY, or use --empty") as found:
        one_body([], False)
    assert found.value.exit_code == 2
    assert one_body([], True) == b"" and one_body([""], False) == b""


def test_a_terminal_is_told_what_is_waited_for(stdin, capsys):
    stdin(b"typed\n", is_terminal=True)
    assert one_body([], False) == b"typed\n"
    assert "reading the body of the message; Ctrl-D" in capsys.readouterr().err
    stdin(b"piped")
    one_body([], False)
    assert capsys.readouterr().err == ""


def test_a_message_is_repeated_with_its_number_in_body_key_and_id():
    pattern = MessagePattern("orders", "k{n}", None, None, id="i-{n}", delay_ms=5)
    made = [each for some in repeated(pattern, b"{n} of many", 3) for each in some]
    assert [(each.body, each.key, each.id, each.delay_ms) for each in made] == [
        (b"1 of many", "k1", "i-1", 5), (b"2 of many", "k2", "i-2", 5), (b"3 of many", "k3", "i-3", 5),
    ]  # fmt: skip
    assert sum(len(some) for some in repeated(pattern, b"", 3 * MESSAGES_MAX + 1)) == 3 * MESSAGES_MAX + 1


def test_lines_are_divided_into_key_and_body_at_the_first_separator(stdin):
    stdin(b"k1:a:b\n:no key\nk2:\r\n")
    made = [each for some in of_lines(PATTERN, ":") for each in some]
    assert [(each.key, each.body) for each in made] == [("k1", b"a:b"), ("", b"no key"), ("k2", b"")]


def test_what_comes_before_a_line_without_the_separator_is_sent_and_the_line_is_named(stdin):
    stdin(b"k1:a\nk2:b\nwrong\nk3:c\n")
    sent = []
    with pytest.raises(CommandError, match="line 3: it has no ':'"):
        for some in of_lines(PATTERN, ":"):
            sent += some
    assert [each.key for each in sent] == ["k1", "k2"]


def test_calls_are_bounded_by_the_pace():
    messages = [[PATTERN.made(b"x", number) for number in range(7)]]
    assert [len(each) for each in batches(messages, 3)] == [3, 3, 1]
    assert SendPace(None).per_call == MESSAGES_MAX and SendPace(2).per_call == 1 and SendPace(1_000).per_call == 50


def test_a_pace_waits_until_the_next_message_is_due(monkeypatch):
    now, slept = [100.0], []
    monkeypatch.setattr(send_source.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        send_source.time, "sleep", lambda seconds: (slept.append(seconds), now.append(now.pop() + seconds))
    )
    pace = SendPace(10)
    for _ in range(4):
        pace.wait(1)
    assert sum(slept) == pytest.approx(0.3)
