"""Prints messages until none has come for --wait-ms, and acknowledges them."""

import sys

import arguments
from penstock_client import Consumer, PenstockError


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--group", required=True)
    parser.add_argument("--wait-ms", type=int, default=1_000)
    given = parser.parse_args()
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
            while deliveries := consumer.pull(wait_ms=given.wait_ms):
                for delivery in deliveries:
                    body = (delivery.message.body or b"").decode(errors="replace")
                    print(
                        f"{delivery.queue}\t{delivery.offset}\t{delivery.attempt}\t{delivery.message.key or ''}\t{body}"
                    )
                    consumer.done(delivery)
    except PenstockError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
