"""Checks of the Host, Origin and Sec-Fetch-Site headers: against DNS rebinding and forged requests."""

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

LOCAL = ("localhost", "127.0.0.1", "::1")


class Origins:
    """
    Args:
        public_url: where browsers reach the console; empty: at the address that it listens on.
        listen_host: that address.
    """

    def __init__(self, public_url: str, listen_host: str) -> None:
        self._public = urlsplit(public_url) if public_url else None
        names: Collection[str] = (listen_host, *LOCAL)
        self._names = {name.casefold() for name in (*names, (self._public and self._public.hostname) or "") if name}

    @property
    def is_https(self) -> bool:
        """Whether browsers reach the console by TLS, which ends at a proxy before it."""
        return self._public is not None and self._public.scheme == "https"

    def base(self, host: str) -> str:
        """The URL of the console, without a path, for a request with this Host header."""
        return f"{self._public.scheme}://{self._public.netloc}" if self._public is not None else f"http://{host}"

    def knows_host(self, host: str) -> bool:
        """Whether a Host header names the console. Addresses are accepted: rebinding needs a name."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").casefold()
        except ValueError:
            return False
        return name in self._names or _is_address(name)

    def is_own(self, host: str, origin: str | None, fetch_site: str | None) -> bool:
        """Whether a change comes from one of the console's pages.

        A program that sends neither header is told by its CSRF token alone.
        """
        if fetch_site is not None and fetch_site not in ("same-origin", "none"):
            return False
        if origin is None:
            return True
        if (
            self._public is not None
            and origin.casefold() == f"{self._public.scheme}://{self._public.netloc}".casefold()
        ):
            return True
        return not self.is_https and origin.casefold() == f"http://{host}".casefold()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
