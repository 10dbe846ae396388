"""The replicated load's process: `python -m tests.fault.replicated.load_process FOLDER`, told what to do over its input.

`drain` stops the senders, `stop` the groups as well; the end of the input stops everything. It answers each with a line
of JSON: its figures.
"""

import json
import resource
import sys
from pathlib import Path
from typing import Any

from tests.e2e.running import Application
from tests.fault.replicated.plan import GROUPS
from tests.fault.replicated.pullers import Pullers
from tests.fault.replicated.records import PULLED, SENT, RecordWriter
from tests.fault.replicated.senders import Senders

SETTINGS = "load.json"


def main(folder: Path) -> None:
    settings = json.loads((folder / SETTINGS).read_text())
    who = Application(*settings["application"])
    sent = RecordWriter(folder / "sent", SENT)
    pulled = {group: RecordWriter(folder / f"pulled-{group}", PULLED) for group in GROUPS}
    senders = Senders(tuple(settings["producer"]), who, settings["rate"], sent, settings["synced"])
    pullers = Pullers(tuple(settings["consumer"]), who, pulled)
    senders.start()
    pullers.start()
    for line in sys.stdin:
        if line.strip() == "stop":
            break
        senders.stop()
        tell(senders, pullers)
    senders.stop()
    pullers.stop()
    tell(senders, pullers)


def tell(senders: Senders, pullers: Pullers) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    facts: dict[str, Any] = {
        "sends": senders.codes,
        "refusals": [[code, text, count] for (code, text), count in senders.refusals.items()],
        "pulls": pullers.codes,
        "acks": pullers.ack_codes,
        "pull_refusals": pullers.refusals,
        "wrong": pullers.wrong,
        "errors": senders.errors + pullers.errors,
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_kib": used.ru_maxrss,
    }
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
