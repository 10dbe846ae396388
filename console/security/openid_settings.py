"""Settings of the console as a client of a provider of OpenID Connect, and the claims that its tokens must have."""

import importlib.util
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from console.roles import Role

HAS_JOSE = importlib.util.find_spec("joserfc") is not None
"""Whether the extra `console-openid` is installed. It is not imported for that: it takes some 15 MB."""


class ExpectedToken(NamedTuple):
    """What an ID token has to say."""

    issuer: str
    client_id: str
    nonce: str


@dataclass(frozen=True)
class OpenIdSettings:
    """
    Attributes:
        secret: of the client; empty: it has none and is known by its challenge alone.
        role_claim: the claim that `roles` is about, with dots into objects; empty: roles are set in the console.
    """

    issuer: str
    client_id: str
    secret: str = field(default="", repr=False)
    role_claim: str = ""
    roles: Mapping[str, Role] = field(default_factory=dict)
    scopes: str = "openid profile email"


def is_safe_url(url: object) -> bool:
    """Whether a URL is of https, or of http on this machine, without user name and fragment."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        return False
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if not host or "@" in parts.netloc or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_local(host))


def _is_local(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
