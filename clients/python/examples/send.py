"""Sends each argument as one message."""

import sys

import arguments
from penstock_client import Message, PenstockError, Producer


def main() -> int:
    parser = arguments.parser(__doc__)
    parser.add_argument("--key")
    parser.add_argument("body", nargs="+")
    given = parser.parse_args()
    with Producer(given.endpoints, given.app, given.key_id, arguments.secret(), arguments.options(given)) as producer:
        for body in given.body:
            try:
                result = producer.send(Message(topic=given.topic, key=given.key, body=body.encode()))
            except PenstockError as error:
                print(error, file=sys.stderr)
                return 1
            print(f"{result.id}\t{result.queue}\t{result.offset}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
