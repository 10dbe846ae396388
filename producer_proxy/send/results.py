"""Results of sends: sentences of contract codes, and retry times."""

from common.contract import Code, SendResult

RETRY_AFTER_MS = 200
OFF_RETRY_AFTER_MS = 5000  # for features that an operator has switched off
BACKLOG_RETRY_AFTER_MS = 1000  # the consumers have to catch up first
FENCED_RETRY_AFTER_MS = 500  # a cut takes seconds
SENTENCES = {
    Code.UNKNOWN_TOPIC: "Message.topic: the broker does not know it; send again",
    Code.INVALID: "the broker refused the message's bytes",
    Code.TOO_LARGE: "larger than the broker takes",
    Code.RATE_LIMITED: "over the rate limit of the topic, the application or this proxy; nothing was stored",
    Code.OVERLOADED: "too much is waiting for the broker; nothing was stored",
    Code.UNAVAILABLE: "the broker cannot be reached; nothing was stored",
    Code.FENCED: "the topic's home changes just now; nothing was stored, send again",
    Code.DISK_FULL: "disk full: the engine has no room for it; nothing was stored",
    Code.TIMEOUT: "no answer from the broker in time; the message may be stored, send again with the same id",
    Code.SHUTTING_DOWN: "this proxy is stopping; use another one",
}

BUFFER_FULL = "the broker takes nothing now, and the fallback buffer is full; nothing was stored"


def refusal(
    code: int, sentence: str | None = None, shown_id: str | None = None, retry_after_ms: int = RETRY_AFTER_MS
) -> SendResult:
    """The result of a message that was not stored, or may not be. Only 2xx codes name a time for a retry."""
    after_ms = retry_after_ms if 200 <= code < 300 else None
    return SendResult(code=code, id=shown_id, retry_after_ms=after_ms, error=sentence or SENTENCES.get(code, ""))
