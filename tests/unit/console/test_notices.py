"""Notices on their way: webhooks to a real server, mail to a real mail server, addresses that are refused."""

import hashlib
import hmac
import json
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message

from console.database.action_log import Actor
from console.database.notice_queue import CHANNELS_MAX, DELAYS_MS
from console.errors import InvalidForm
from console.watching.courier import NoticeCourier
from console.watching.errors import NoticeFailed
from console.watching.mail import MailSender, MailServer
from console.watching.webhook import WebhookSender, resolve
from tests.unit.console.consoles import text_of

OTTO = Actor("otto", "10.0.0.1")
LOOPBACK = ("127.0.0.0/8", "::1/128")
HOSTILE = 'Group "<script>alert(1)</script>\u202e" \r\nBcc: all@example.org\x00 🦆'


@contextmanager
def web_server(status: int = 200, wait_s: float = 0.0):
    """A web server that keeps what it was sent."""
    got: list[tuple[dict, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((dict(self.headers), self.rfile.read(int(self.headers["Content-Length"]))))
            if not done.wait(wait_s):
                self.send_response(status)
                self.send_header("Location", "http://169.254.169.254/latest/meta-data")
                self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    done = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook?team=shop", got
    done.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def courier(console) -> NoticeCourier:
    return NoticeCourier(console.parts.notices, WebhookSender(LOOPBACK), MailSender(MailServer()), "http://console")


def put(console, title: str = "Firing: lag, group billing", **body: object) -> None:
    with console.parts.database.write() as connection:
        console.parts.notices.put(connection, "alert.firing", title, {"path": "/alerts", **body})


def states(console) -> list[tuple[str, str]]:
    return [(each["state"], each["problem"]) for each in console.parts.notices.latest()]


def test_a_webhook_gets_the_notice_signed_with_its_time(console, courier):
    with web_server() as (url, got):
        channel = console.parts.notices.add_channel(OTTO, "ops", "webhook", courier.check("webhook", url), True, False)
        put(console, text=HOSTILE)
        assert courier.round() == 1 and states(console) == [("sent", "")]
    ((headers, body),) = got
    signed = hmac.new(channel.secret.encode(), f"{headers['Penstock-Time']}.".encode() + body, hashlib.sha256)
    assert headers["Penstock-Signature"] == f"v1={signed.hexdigest()}"
    assert abs(int(headers["Penstock-Time"]) - time.time()) < 60
    value = json.loads(body)
    assert value["text"] == HOSTILE and value["url"] == "http://console/alerts" and value["event"] == "alert.firing"
    assert courier.round() == 0, "it is sent once"


@pytest.mark.parametrize("status", [301, 307, 404, 500])
def test_an_answer_that_is_not_2xx_is_tried_again_later_and_no_redirect_is_followed(console, courier, status):
    with web_server(status) as (url, got):
        console.parts.notices.add_channel(OTTO, "ops", "webhook", url, True, False)
        put(console)
        for delay_ms in DELAYS_MS:
            assert courier.round() == 1 and courier.round() == 0
            console.clock.advance(delay_ms)
        assert courier.round() == 1 and states(console)[0] == ("failed", f"127.0.0.1 answered with status {status}")
        console.clock.advance(86_400_000)
        assert courier.round() == 0 and len(got) == len(DELAYS_MS) + 1


def test_a_target_that_does_not_answer_costs_a_bounded_time(console, courier, monkeypatch):
    monkeypatch.setattr("console.watching.webhook.TOTAL_S_MAX", 0.3)
    with web_server(wait_s=5.0) as (url, _):
        began = time.monotonic()
        with pytest.raises(NoticeFailed, match="does not answer"):
            courier.webhooks.send(url, "s", "test", 1, {})
        assert time.monotonic() - began < 2.0


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "0.0.0.0", "100.64.0.1", "224.0.0.1",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::",
        "64:ff9b::7f00:1", "ff02::1", "255.255.255.255", "64:ff9b:1::a00:1", "fec0::1", "::a00:1",
    ],
)  # fmt: skip
def test_a_webhook_reaches_no_address_that_is_not_public(address):
    sender = WebhookSender((), lambda host, port: [address])
    with pytest.raises(NoticeFailed, match="public addresses"):
        sender.send("http://hooks.example.org/x", "s", "test", 1, {})
    mixed = WebhookSender((), lambda host, port: ["93.184.216.34", address])
    with pytest.raises(NoticeFailed, match="public addresses"):
        mixed.send("http://hooks.example.org/x", "s", "test", 1, {})


def test_the_address_that_was_checked_is_the_one_that_is_reached():
    """A name that leads to a public address at the check and to another one afterwards gets no second look."""
    with web_server() as (url, got):
        looks: list[str] = []

        def find(host: str, port: int) -> list[str]:
            looks.append(host)
            return ["127.0.0.1"]

        named = url.replace("127.0.0.1", "hooks.example.org")
        WebhookSender(LOOPBACK, find).send(named, "s", "test", 1, {})
    assert looks == ["hooks.example.org"] and got[0][0]["Host"].startswith("hooks.example.org:")


def test_an_allowed_network_does_not_open_others():
    sender = WebhookSender(("10.0.0.0/8",), lambda host, port: ["127.0.0.1"])
    with pytest.raises(NoticeFailed, match="--notify-networks"):
        sender.send("http://x.example/", "s", "test", 1, {})
    assert resolve("127.0.0.1", 80) == ["127.0.0.1"]


@pytest.mark.parametrize(
    "url",
    [
        "", "ftp://example.org/", "file:///etc/passwd", "http://", "https://user:secret@example.org/", "http://e:99999/",
        "http://example.org/\r\nX: y", "http://exa mple.org/", "javascript:alert(1)", "http://[::1", "http://é.example/",
        f"https://example.org/{'x' * 500}", "//example.org/", "http://example.org:0/",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_a_target_is_refused(url):
    with pytest.raises(InvalidForm):
        WebhookSender().check(url)


class Inbox(Message):
    """Keeps the messages that the mail server has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list = []

    def handle_message(self, message: object) -> None:
        self.got.append(message)


class MailService(Controller):
    """A mail server on a free port."""

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


def test_mail_is_delivered_and_a_title_cannot_add_a_header(console):
    inbox = Inbox()
    server = MailService(inbox, hostname="127.0.0.1", port=0)
    server.start()
    try:
        mail = MailSender(MailServer("127.0.0.1", server.port, "none", sender="penstock@example.org"))
        courier = NoticeCourier(console.parts.notices, WebhookSender(), mail, "http://console")
        target = courier.check("mail", " ops@example.org, night@example.org ")
        console.parts.notices.add_channel(OTTO, "ops", "mail", target, True, True)
        put(console, HOSTILE, text=HOSTILE)
        courier.round()
        assert states(console) == [("sent", "")]
    finally:
        server.stop()
    (message,) = inbox.got
    assert message["To"] == "ops@example.org, night@example.org" and message["Bcc"] is None
    assert (
        "⟨U+202E⟩" in message.get_payload(decode=True).decode()
        and "http://console/alerts" in message.get_payload(decode=True).decode()
    )
    assert message["Auto-Submitted"] == "auto-generated"


def test_a_mail_server_that_is_away_or_has_no_tls_is_a_problem_of_the_notice(console):
    mail = MailSender(MailServer("127.0.0.1", 1, "none", sender="a@b"))
    with pytest.raises(NoticeFailed, match=r"mail server 127\.0\.0\.1"):
        mail.send("ops@example.org", "t", "x")
    server = MailService(Inbox(), hostname="127.0.0.1", port=0)
    server.start()
    try:
        place = MailServer("127.0.0.1", server.port, sender="a@b")
        with pytest.raises(NoticeFailed, match="STARTTLS"):
            MailSender(place).send("ops@example.org", "t", "x")
        with pytest.raises(NoticeFailed):
            MailSender(replace(place, tls="none", user="u", password="p")).send("ops@example.org", "t", "x")
    finally:
        server.stop()


@pytest.mark.parametrize("target", ["", "nobody", "a@b\r\nBcc: c@d", "a b@c", "<a@b>", "a@b," * 11, "a@b;c@d"])
def test_mail_addresses_that_are_none_are_refused(target):
    with pytest.raises(InvalidForm):
        MailSender(MailServer("127.0.0.1")).check(target)


def test_an_administrator_adds_tests_switches_and_removes_a_channel(console, courier):
    browser = console.with_parts(courier=courier).as_role("admin")
    with web_server() as (url, got):
        answer = browser.post("/channels", name="Ops", kind="webhook", target=url, of_alerts="on")
        (channel,) = console.parts.notices.channels()
        assert channel.secret in answer.get_data(as_text=True) and "not shown again" in text_of(answer)
        assert channel.secret not in browser.get("/channels").get_data(as_text=True)
        browser.post(f"/channels/{channel.id}/test")
        courier.round()
        assert json.loads(got[0][1])["text"] == "admin tests this channel."
    assert "sent" in text_of(browser.get("/channels"))
    browser.post(f"/channels/{channel.id}/switch", on="")
    put(console)
    assert courier.round() == 0
    browser.post(f"/channels/{channel.id}/remove")
    assert console.parts.notices.channels() == [] and states(console) == []
    audit = text_of(browser.get("/audit"))
    assert all(word in audit for word in ("add channel", "test channel", "switch channel", "remove channel"))
    assert channel.secret not in browser.get("/audit.csv").get_data(as_text=True)


def test_a_form_with_faults_says_them_and_adds_nothing(console):
    browser = console.as_role("admin")
    for fields in ({"kind": "pigeon"}, {"target": "file:///x"}, {"name": ""}, {"kind": "mail", "target": "a@b"}):
        good = {"name": "<b>Ops</b>", "kind": "webhook", "target": "https://example.org/"}
        answer = browser.post("/channels", **{**good, **fields})
        assert answer.status_code == 422 and 'class="fault"' in answer.get_data(as_text=True), fields
        assert "<b>Ops" not in answer.get_data(as_text=True)
    assert console.parts.notices.channels() == []
    browser.post("/channels", **good)
    assert "exists already" in text_of(browser.post("/channels", **good))


def test_notices_that_nobody_takes_are_bounded(console, monkeypatch):
    monkeypatch.setattr("console.database.notice_queue.WAITING_MAX", 5)
    channel = console.parts.notices.add_channel(OTTO, "ops", "webhook", "https://example.org/", True, True)
    for _ in range(8):
        put(console)
    assert len(console.parts.notices.latest(10_000)) == 5
    for number in range(1, CHANNELS_MAX):
        console.parts.notices.add_channel(OTTO, f"c{number}", "webhook", "https://example.org/", False, False)
    with pytest.raises(InvalidForm, match="the most"):
        console.parts.notices.add_channel(OTTO, "more", "webhook", "https://example.org/", False, False)
    assert channel.is_on
