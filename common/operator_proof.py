"""Proof that a request to the operator's port comes from who has the cluster's key.

proof = HMAC-SHA256(key, "penstock-ops/1\\n" + process + "\\n" + path + "\\n" + decimal(at_ms) + "\\n" + body), as hex. The
body names what is changed by an id that is given once, so that a repeated request changes nothing more.
"""

import hmac

CONNECTIONS_PATH, CLOSE_PATH = "/connections", "/connections/close"
DELIVERIES_PATH = "/deliveries"
DRAIN_PATH, OUT, BACK = "/drain", "out", "back"
"""The page, and the words that take a proxy out of service and put it back, each before the turn of its present state."""

PROOF_HEADER, TIME_HEADER = "Penstock-Proof", "Penstock-Time"
WINDOW_MS = 60_000


def proof(key: bytes, process: str, path: str, at_ms: int, body: bytes) -> str:
    """The proof for one request, to the process that reports under this name."""
    head = f"penstock-ops/1\n{process}\n{path}\n{at_ms}\n".encode()
    return hmac.new(key, head + body, "sha256").hexdigest()


def proof_fault(key: bytes, process: str, path: str, at: str, body: bytes, given: str, now_ms: int) -> str:
    """Why a request is refused; empty: it is proved."""
    if not (at.isascii() and at.isdigit() and len(at) < 20) or abs(now_ms - int(at)) > WINDOW_MS:
        return f"{TIME_HEADER} is more than {WINDOW_MS // 1000} s away from this machine's clock: set the clocks"
    if not hmac.compare_digest(proof(key, process, path, int(at), body).encode(), given.encode()):
        return f"{PROOF_HEADER} is wrong: use the cluster's key, and the name of this process"
    return ""
