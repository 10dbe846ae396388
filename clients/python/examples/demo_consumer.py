"""Pulls until --count different lines have come, or SIGTERM; prints one line per delivery and acknowledges all.

A line is: line number, key, queue, offset, attempt, SHA-256 of the body in hex; separated by tabs. A message that is
delivered twice is printed twice and counted once.
"""

import hashlib
import signal
import sys
import threading

import arguments
from penstock_client import Consumer, PenstockError


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--group", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--max", type=int, default=256)
    given = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    seen: set[str] = set()
    try:
        with Consumer(
            given.endpoints,
            given.app,
            given.key_id,
            arguments.secret(),
            given.group,
            [given.topic],
            options=arguments.options(given),
        ) as consumer:
            while len(seen) < given.count and not stop.is_set():
                for delivery in consumer.pull(given.max, wait_ms=1_000):
                    message = delivery.message
                    line = (message.properties or {}).get("line", "")
                    digest = hashlib.sha256(message.body or b"").hexdigest()
                    place = f"{delivery.queue}\t{delivery.offset}\t{delivery.attempt}"
                    sys.stdout.write(f"{line}\t{message.key or ''}\t{place}\t{digest}\n")
                    seen.add(line)
                    consumer.done(delivery)
                sys.stdout.flush()
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
