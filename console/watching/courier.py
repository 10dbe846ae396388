"""The courier: sends queued notices to their channels, and tries again those that did not arrive."""

import logging
from datetime import UTC, datetime
from typing import Any

from common.limited_log import LimitedLog
from console.database.alert_states import AlertState
from console.database.notice_queue import Notice, NoticeQueue
from console.shown import visible
from console.watching.alert_watch import shown_subject
from console.watching.errors import NoticeFailed
from console.watching.mail import MailSender
from console.watching.webhook import WebhookSender

limited = LimitedLog(logging.getLogger("penstock.console"))
WEBHOOK, MAIL = "webhook", "mail"
KINDS = (WEBHOOK, MAIL)
ROUND_MAX = 20


class NoticeCourier:
    """
    Args:
        url: where browsers reach the console, for links; empty: notices have none.
    """

    def __init__(self, queue: NoticeQueue, webhooks: WebhookSender, mail: MailSender, url: str = "") -> None:
        self._queue, self.webhooks, self.mail, self.url = queue, webhooks, mail, url

    def check(self, kind: str, target: str) -> str:
        """The target of a channel, where it can be one. Raises InvalidForm."""
        return self.mail.check(target) if kind == MAIL else self.webhooks.check(target)

    def round(self) -> int:
        """Send what is due, at most ROUND_MAX notices; return how many were tried."""
        for count in range(ROUND_MAX):
            notice = self._queue.claim()
            if notice is None:
                return count
            self._send(notice)
        return ROUND_MAX

    def _send(self, notice: Notice) -> None:
        channel, body = notice.channel, self._body(notice)
        try:
            if channel.kind == MAIL:
                self.mail.send(channel.target, visible(notice.title), visible(mail_text(body)))
            else:
                self.webhooks.send(channel.target, channel.secret, notice.event, notice.id, body)
        except NoticeFailed as error:
            limited.warning("notice=%d channel=%s: it did not arrive: %s", notice.id, channel.name, error)
            self._queue.failed(notice, str(error))
        else:
            self._queue.sent(notice)

    def _body(self, notice: Notice) -> dict[str, Any]:
        head = {"event": notice.event, "notice": notice.id, "at_ms": notice.created_ms, "title": notice.title}
        found = {**head, **notice.body}
        if self.url and "path" in found:
            found["url"] = self.url + found.pop("path")
        return found


def alert_notice(event: str, alert: AlertState) -> tuple[str, dict[str, Any]]:
    """Title and body of a notice about an alert."""
    word = "Resolved" if event == "alert.resolved" else "Firing"
    body = {
        "rule": alert.rule, "subject": alert.subject, "value": alert.value, "text": alert.sentence,
        "began_ms": alert.began_ms, "path": "/alerts",
    }  # fmt: skip
    return f"{word}: {alert.rule}, {shown_subject(alert.subject)}", body


def mail_text(body: dict[str, Any]) -> str:
    """The body as text."""
    at = datetime.fromtimestamp(body["at_ms"] / 1000, UTC)
    lines = [str(body["title"]), "", str(body.get("text", "")), "", f"{at:%Y-%m-%d %H:%M:%S} UTC"]
    if "url" in body:
        lines.append(str(body["url"]))
    return "\n".join(lines) + "\n"
