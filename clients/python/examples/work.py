"""Handles messages by `Consumer.run`, each for --handle-ms, until SIGTERM; prints one line per handled message.

A line is: topic, queue, offset, attempt; separated by tabs. The last line is a JSON object of counts.
"""

import json
import signal
import sys
import threading
import time

import arguments
from penstock_client import Consumer, Delivery, PenstockError


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--group", required=True)
    parser.add_argument("--handle-ms", type=int, default=0)
    parser.add_argument("--lease-ms", type=int, help="default: the group's setting")
    parser.add_argument("--outage-ms", type=int, default=600_000, help="end when no pull has succeeded for so long")
    parser.add_argument("--workers", type=int, default=1, help="handlers at a time")
    given = parser.parse_args()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    handled = busy = busiest = 0
    counting = threading.Lock()

    def handle(delivery: Delivery) -> None:
        nonlocal handled, busy, busiest
        with counting:
            busy += 1
            busiest = max(busy, busiest)
        time.sleep(given.handle_ms / 1000)
        with counting:
            print(f"{delivery.message.topic}\t{delivery.queue}\t{delivery.offset}\t{delivery.attempt}", flush=True)
            busy -= 1
            handled += 1

    try:
        with Consumer(
            given.endpoints,
            given.app,
            given.key_id,
            arguments.secret(),
            given.group,
            given.topic.split(","),
            invisible_ms=given.lease_ms,
            options=arguments.options(given, outage_ms_max=given.outage_ms),
        ) as consumer:
            consumer.run(handle, stop, workers=given.workers)
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps({"handled": handled, "refused": consumer.acks_refused, "busiest": busiest}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
