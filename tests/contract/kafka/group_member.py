"""A reader of a group in a process of its own, so that a test can stop it in its tracks: DRIVER BOOTSTRAP GROUP TOPIC.

It obeys lines of standard input and answers each by one line: `own` polls until it has partitions, `commit N` commits
offset N in all of them, `poll` polls once and prints the partitions that it has then.
"""

import sys

from common.kafka.base import GroupListener, GroupOptions
from common.kafka.connection import KafkaConnection
from common.kafka.drivers import open_driver

SESSION_S = 2.0


def main(driver: str, bootstrap: str, group: str, topic: str) -> None:
    options = GroupOptions(group, (topic,), session_s=SESSION_S)
    reader = open_driver(driver).group_reader(KafkaConnection("test", (bootstrap,)), options, GroupListener())
    for line in sys.stdin:
        verb, *numbers = line.split()
        owned = reader.positions()
        if verb == "commit":
            print(reader.commit(dict.fromkeys(owned, int(numbers[0]))).outcome.value, flush=True)
            continue
        reader.poll(0.5)
        while verb == "own" and not reader.positions():
            reader.poll(0.5)
        print(sorted(each.number for each in reader.positions()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
