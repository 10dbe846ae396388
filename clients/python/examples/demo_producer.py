"""Streams a file, one message per line, and reports progress as JSON lines.

Line i has key "k<i mod N>", property line=i, and the line's bytes with its newline as body.
"""

import itertools
import json
import sys
import time

import arguments
from penstock_client import Message, PenstockError, Producer


class Report:
    """Counts, and prints once per second and at the end."""

    def __init__(self) -> None:
        self.started_s = self.printed_s = time.monotonic()
        self.sent = 0
        self.calls_ms: list[float] = []

    def called(self, messages: int, took_s: float, retried: int) -> None:
        self.sent += messages
        self.calls_ms.append(took_s * 1000)
        if time.monotonic() - self.printed_s >= 1:
            self.print(retried)

    def print(self, retried: int) -> None:
        self.printed_s = time.monotonic()
        ordered = sorted(self.calls_ms) or [0.0]
        print(
            json.dumps(
                {
                    "sent": self.sent,
                    "retried": retried,
                    "seconds": round(self.printed_s - self.started_s, 3),
                    "p50_ms": round(ordered[len(ordered) // 2], 3),
                    "p99_ms": round(ordered[len(ordered) * 99 // 100], 3),
                }
            ),
            flush=True,
        )


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--file", required=True)
    parser.add_argument("--keys", type=int, default=16)
    parser.add_argument("--batch", type=int, default=100)
    given = parser.parse_args()
    report = Report()
    with (
        open(given.file, "rb") as file,
        Producer(given.endpoints, given.app, given.key_id, arguments.secret(), arguments.options(given)) as producer,
    ):
        lines = enumerate(file)
        while batch := [
            Message(topic=given.topic, key=f"k{number % given.keys}", body=line, properties={"line": str(number)})
            for number, line in itertools.islice(lines, given.batch)
        ]:
            began_s = time.monotonic()
            try:
                results = producer.send_all(batch)
            except PenstockError as error:
                print(error, file=sys.stderr)
                return 1
            lost = [result for result in results if not result.ok]
            report.called(len(results) - len(lost), time.monotonic() - began_s, producer.retried)
            if lost:
                print(f"{len(lost)} not acknowledged; the first: code {lost[0].code}: {lost[0].error}", file=sys.stderr)
                report.print(producer.retried)
                return 1
        report.print(producer.retried)
    return 0


if __name__ == "__main__":
    sys.exit(main())
