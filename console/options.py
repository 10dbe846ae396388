"""Command line of the console."""

import argparse
import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

from common.address import Address, engine_addresses, host_and_port
from common.config.root_keys import root_keys_faults
from common.process_options import ProcessParser
from common.secret_file import secret_faults
from console.roles import Role
from console.security.openid_roles import parse_roles
from console.security.openid_settings import HAS_JOSE, OpenIdSettings, is_safe_url
from console.watching.mail import TLS_KINDS, MailServer

FIRST = ""
OPENID_VARIABLE = "PENSTOCK_CONSOLE_OPENID_SECRET"
SMTP_VARIABLE = "PENSTOCK_CONSOLE_SMTP_PASSWORD"
HELP = {
    "config": "Configuration store.",
    "data": "Directory for the console's database and its snapshot of the configuration.",
    "database": "Database as sqlite:///PATH or postgresql://USER@HOST/NAME (default: console.db in DIR). "
    "$PENSTOCK_CONSOLE_DATABASE is used where the URL has a password.",
    "admin-key": "File with the key by which engines are administered; without it there are no offsets, lags and messages.",
    "controller-key": "File with the key of controllers, for planned switches of masters (default: --cluster-key).",
    "cluster-key": "In place of --controller-key where brokers have none, and to close connections of clients where proxies "
    "have no --ops-key.",
    "secrets-key": "File with the root keys from which secrets of applications are derived; without it new keys have their "
    "secrets stored in clear.",
    "engine": "Brokers of the only broker group, separated by commas (default: broker groups of the configuration).",
    "metrics": "Operators' ports of the processes, separated by commas, whose /metrics pages the charts and alerts of the "
    "installation are made from (default: none).",
    "listen": "Address of the pages (default 127.0.0.1:9720).",
    "public-url": "URL by which browsers reach the console where a proxy ends TLS before it.",
    "trusted-proxy": "Address of that proxy, whose X-Forwarded-For is believed.",
    "smtp": "Mail server for notices (default: no mail is sent). Its password is $PENSTOCK_CONSOLE_SMTP_PASSWORD.",
    "smtp-tls": "Protection of its connection: starttls, tls or none (default starttls).",
    "smtp-user": "User name at the mail server (default: none).",
    "smtp-from": "Sender of the mail (default: penstock-console@localhost).",
    "notify-networks": "Networks that are not public and that webhooks may go to, separated by commas (default: none).",
    "openid-issuer": "Provider of OpenID Connect that people may sign in by, as its description names it (default: passwords "
    "only). Extra penstock[console-openid].",
    "openid-client": "The console's client id there. Its secret, if it has one, is $PENSTOCK_CONSOLE_OPENID_SECRET.",
    "openid-role-claim": "Claim that gives roles at each sign-in (default: new people are viewers, and administrators change "
    "roles).",
    "openid-roles": "Roles by value of that claim; people without one of them are viewers.",
    "backup": "Write a copy of the SQLite database to FILE, also while the console runs, and exit.",
    "restore": "Replace the content of the SQLite database by the copy FILE, and exit. Stop the console before.",
    "schema": "Bring the database's schema to REVISION (head, base or one of them), up or down, and exit. Stop the console "
    "before.",
    "ready-fd": "File descriptor that gets one JSON line once the console serves.",
    "sign-in-link": "Print a one-time link by which account NAME sets a password (without NAME: by which the first "
    "account is made), and exit.",
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options. Prints all faults and exits with 2 when they cannot be used."""
    parser = ProcessParser(prog="penstock console", description="Serve the web console.")

    def add(name: str, metavar: str, **settings: object) -> None:
        parser.add_argument(f"--{name}", metavar=metavar, help=HELP[name], **settings)  # type: ignore[arg-type]

    add("config", "URL", required=True)
    add("data", "DIR", required=True, type=Path)
    add("database", "URL", default="")
    add("admin-key", "FILE")
    add("controller-key", "FILE")
    add("cluster-key", "FILE")
    add("secrets-key", "FILE")
    add("engine", "HOST:PORT,…", type=_brokers, default=())
    add("metrics", "HOST:PORT,…", type=_addresses, default=())
    add("listen", "HOST:PORT", type=host_and_port, default=Address("127.0.0.1", 9720))
    add("public-url", "URL", default="")
    add("trusted-proxy", "ADDRESS", default="")
    add("smtp", "HOST:PORT", type=host_and_port)
    add("smtp-tls", "KIND", choices=TLS_KINDS, default=TLS_KINDS[0])
    add("smtp-user", "NAME", default="")
    add("smtp-from", "ADDRESS", default="penstock-console@localhost")
    add("notify-networks", "CIDR,…", type=_networks, default=())
    add("openid-issuer", "URL", default="")
    add("openid-client", "ID", default="")
    add("openid-role-claim", "CLAIM", default="")
    add("openid-roles", "VALUE=ROLE,…", type=_roles, default={})
    add("ready-fd", "N", type=int)
    add("sign-in-link", "NAME", nargs="?", const=FIRST)
    add("backup", "FILE", type=Path)
    add("restore", "FILE", type=Path)
    add("schema", "REVISION")
    options = parser.parse_args(arguments)
    names = ("admin_key", "controller_key", "cluster_key")
    found = secret_faults({f"--{name.replace('_', '-')}": getattr(options, name) for name in names})
    found += root_keys_faults(options.secrets_key)
    if options.public_url and not _is_public_url(options.public_url):
        found.append(f"--public-url {options.public_url}: use http://HOST or https://HOST, without a path")
    found += openid_faults(options)
    if found:
        parser.error("; ".join(found))
    return options


def _brokers(text: str) -> tuple[Address, ...]:
    found = engine_addresses(text)
    return (found,) if isinstance(found, Address) else found


def _addresses(text: str) -> tuple[Address, ...]:
    return tuple(host_and_port(each) for each in text.split(",") if each)


def _networks(text: str) -> tuple[str, ...]:
    found = tuple(each.strip() for each in text.split(",") if each.strip())
    for each in found:
        ipaddress.ip_network(each)
    return found


def _roles(text: str) -> dict[str, Role]:
    try:
        return parse_roles(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def openid_faults(options: argparse.Namespace) -> list[str]:
    """Faults of the options of OpenID Connect."""
    issuer = options.openid_issuer
    if not issuer:
        more = ("openid_client", "openid_role_claim", "openid_roles")
        given = [f"--{each.replace('_', '-')}" for each in more if getattr(options, each)]
        return [f"{given[0]}: use it with --openid-issuer"] if given else []
    faults = []
    if not is_safe_url(issuer):
        faults.append(f"--openid-issuer {issuer}: use https://HOST…, or http:// on this machine")
    if not HAS_JOSE:
        faults.append("--openid-issuer: install the extra: pip install 'penstock[console-openid]'")
    if not options.openid_client:
        faults.append("--openid-issuer: name the console's client id with --openid-client")
    if bool(options.openid_role_claim) != bool(options.openid_roles):
        faults.append("--openid-role-claim, --openid-roles: use both or none")
    return faults


def openid_settings(options: argparse.Namespace) -> OpenIdSettings | None:
    """The provider of the options; None: people sign in with passwords only."""
    if not options.openid_issuer:
        return None
    secret = os.environ.get(OPENID_VARIABLE, "")
    claim, roles = options.openid_role_claim, options.openid_roles
    return OpenIdSettings(options.openid_issuer, options.openid_client, secret, claim, roles)


def mail_server(options: argparse.Namespace) -> MailServer | None:
    """The mail server of the options."""
    if options.smtp is None:
        return None
    password = os.environ.get(SMTP_VARIABLE, "")
    return MailServer(
        options.smtp.host, options.smtp.port, options.smtp_tls, options.smtp_user, password, options.smtp_from
    )


def _is_public_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.path in ("", "/") and port != 0
