"""Notices by e-mail, through one SMTP server."""

import re
import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate, make_msgid

from console.errors import InvalidForm
from console.watching.errors import NoticeFailed

SMTP_S_MAX = 5.0
ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9.-]{1,190}")
ADDRESSES_MAX = 10
TLS_KINDS = ("starttls", "tls", "none")


@dataclass(frozen=True)
class MailServer:
    """The server that sends mail; with an empty `host` none is sent.

    Attributes:
        tls: starttls, tls from the first byte on, or none.
    """

    host: str = ""
    port: int = 587
    tls: str = "starttls"
    user: str = ""
    password: str = ""
    sender: str = ""


class MailSender:
    def __init__(self, server: MailServer) -> None:
        self._server = server

    @property
    def is_configured(self) -> bool:
        return bool(self._server.host)

    def check(self, target: str) -> str:
        """The addresses, separated by commas. Raises InvalidForm."""
        found = [each.strip() for each in target.split(",") if each.strip()]
        if not 1 <= len(found) <= ADDRESSES_MAX or not all(ADDRESS.fullmatch(each) for each in found):
            raise InvalidForm({"target": f"Use 1 to {ADDRESSES_MAX} e-mail addresses, separated by commas."})
        if not self.is_configured:
            raise InvalidForm({"target": "The console was started without --smtp: it sends no mail."})
        return ", ".join(found)

    def send(self, target: str, title: str, text: str) -> None:
        """Send one mail. Raises NoticeFailed."""
        if not self.is_configured:
            raise NoticeFailed("the console was started without --smtp")
        message = EmailMessage()
        message["From"], message["To"] = self._server.sender, target
        message["Subject"] = " ".join(title.split())[:200]
        message["Date"], message["Message-ID"] = formatdate(), make_msgid("penstock", self._server.host)
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(text)
        try:
            with self._connect() as connection:
                if self._server.user:
                    connection.login(self._server.user, self._server.password)
                connection.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            raise NoticeFailed(f"mail server {self._server.host}: {' '.join(str(error).split())}") from error

    def _connect(self) -> smtplib.SMTP:
        place, context = (self._server.host, self._server.port), ssl.create_default_context()
        if self._server.tls == "tls":
            return smtplib.SMTP_SSL(*place, timeout=SMTP_S_MAX, context=context)
        connection = smtplib.SMTP(*place, timeout=SMTP_S_MAX)
        if self._server.tls == "starttls":
            connection.starttls(context=context)
        return connection
