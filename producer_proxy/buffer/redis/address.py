"""The address of a Redis, as the proxy's option gives it: `redis://`, `sentinel://`, `cluster://` or `codis://`."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

KINDS = ("redis", "sentinel", "cluster", "codis")
LAYOUTS = ("streams", "lists")


@dataclass(frozen=True)
class RedisAddress:
    """A parsed address.

    Attributes:
        kind: codis means 3.2 commands through a proxy: only the lists layout, and the servers' settings cannot be read.
        hosts: addresses of the server or proxy, of Sentinels, or of some of a Cluster's nodes.
        master: the master's name at the Sentinels.
    """

    kind: str
    hosts: tuple[tuple[str, int], ...]
    master: str = ""
    db: int = 0
    layout: str = "streams"


def parse_address(url: str) -> RedisAddress:
    """`redis://HOST:PORT[/DB]`, `sentinel://HOST:PORT,…/MASTER`, `cluster://HOST:PORT,…`, `codis://HOST:PORT`, each
    with `?layout=lists`.

    Raises: ValueError with a sentence. Passwords are not accepted, because command lines are public.
    """
    parts = urlsplit(url)
    if parts.scheme not in KINDS:
        raise ValueError(f"{url!r}: must begin with one of {', '.join(f'{kind}://' for kind in KINDS)}")
    if "@" in parts.netloc:
        raise ValueError("a Redis password goes into --buffer-redis-password-file, not into the URL")
    hosts = tuple(_host(url, each) for each in parts.netloc.split(","))
    if len(hosts) > 1 and parts.scheme in ("redis", "codis"):
        raise ValueError(f"{url!r}: exactly one HOST:PORT")
    path, settings = parts.path.strip("/"), dict(parse_qsl(parts.query, keep_blank_values=True))
    layout = settings.pop("layout", "lists" if parts.scheme == "codis" else "streams")
    if settings or layout not in LAYOUTS:
        raise ValueError(f"{url!r}: the only setting is layout=streams or layout=lists")
    if parts.scheme == "codis" and layout != "lists":
        raise ValueError(f"{url!r}: codis has no streams")
    if parts.scheme == "sentinel" and not path:
        raise ValueError(f"{url!r}: name the master after the hosts, as in sentinel://host:26379/mymaster")
    if parts.scheme == "redis" and path and not path.isdigit():
        raise ValueError(f"{url!r}: the path must be the number of a database")
    db = int(path) if parts.scheme == "redis" and path else 0
    return RedisAddress(parts.scheme, hosts, path if parts.scheme == "sentinel" else "", db, layout)


def _host(url: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{url!r}: {text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)
