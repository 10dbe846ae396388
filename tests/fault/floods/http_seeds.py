"""Whole requests of HTTP for operators' ports and the console: what mutation starts from."""

from urllib.parse import quote

PLAIN = b"Host: 127.0.0.1\r\n"
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
PARTS = (
    b'--x\r\nContent-Disposition: form-data; name="topics"\r\n\r\norders\r\n'
    b'--x\r\nContent-Disposition: form-data; name="filter"; filename="a"\r\n\r\na = 1\r\n--x--\r\n'
)


def request(line: str, headers: bytes = b"", body: bytes = b"") -> bytes:
    """With the length of its body."""
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    return f"{line} HTTP/1.1\r\n".encode() + PLAIN + headers + length + b"\r\n" + body


def of_operators() -> list[bytes]:
    """Requests of monitors and of the command line to a process."""
    return [
        request("GET /metrics", b"Accept-Encoding: gzip\r\n"), request("GET /readyz"), request("GET /healthz"),
        request("GET /connections?limit=10&group=g", b"Accept: */*\r\n"), b"GET /readyz HTTP/1.0\r\n\r\n",
        request("HEAD /healthz", b"Connection: close\r\n"),
        request("POST /connections/close", b"Penstock-Proof: 00\r\nPenstock-Time: 1\r\n", b"abcd"),
    ]  # fmt: skip


def of_visitors() -> list[bytes]:
    """What browsers and programs ask of the console before they have signed in."""
    return [
        request("GET /", b"Cookie: penstock=abc; penstock-browser=x.y\r\n"), request("GET /sign-in?next=/topics"),
        request("GET /static/uplot.min.js", b"Range: bytes=0-10\r\nIf-None-Match: \"a\"\r\n"), request("GET /readyz"),
        request("POST /sign-in", FORM, b"name=a&password=bcd"), request("POST /link/abc", FORM, b"password=bcd"),
        request("GET /api/v1/topics?limit=3", b"Authorization: Bearer abc\r\n"),
        request("POST /api/v1/topics", b"Authorization: Bearer abc\r\nContent-Type: application/json\r\n", b'{"name": "a"}'),
        request("POST /sign-in", b"Transfer-Encoding: chunked\r\n") + b"3\r\nabc\r\n0\r\n\r\n",
        request("GET /sign-in/openid/answer?state=a&code=b", b"X-Forwarded-For: 1.2.3.4\r\n"),
    ]  # fmt: skip


def of_people(topic: str) -> list[bytes]:
    """Pages and forms of the console that change nothing, for a session that the port adds."""
    wish = b"name=a&queues=4&retention_hours=24&team=1&durability=disk&rate=100&owner=x"
    return [
        request("GET /"), request(f"GET /topics?q={topic}&after=a"), request(f"GET /topics/{topic}"),
        request(f"GET /search?q={quote('ö r')}&kind=topic&after=a", b"HX-Request: true\r\n"),
        request("GET /charts?subject=&names=in,out&range=1h"), request("GET /map"), request("GET /audit?before=9"),
        request(f"GET /topics/{topic}/messages?by=place&queue=0&offset=0"),
        request(f"GET /topics/{topic}/messages?by=time&from=2026-01-01T00:00"),
        request(f"GET /topics/{topic}/messages?by=match&filter={quote('a = 1 AND b LIKE ' + repr('x%'))}"),
        request(f"GET /topics/{topic}/code?language=go&app=a"), request("GET /requests?state=open&before=3"),
        request("GET /connections?group=g"), request("GET /topics.csv?q=o"),
        request("POST /consumption/try", FORM, f"topics={topic}&filter=a%20%3D%201".encode()),
        request("POST /consumption/check", FORM, f"name=g&topics={topic}&application=shop&filter=a&order=key".encode()),
        request("POST /consumption/try", b"Content-Type: multipart/form-data; boundary=x\r\n", PARTS),
        request("POST /requests/check", FORM, wish),
    ]  # fmt: skip
