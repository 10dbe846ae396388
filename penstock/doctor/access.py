"""Access to the configuration in ZooKeeper: its users, and nodes with other access lists."""

from collections.abc import Iterator
from contextlib import closing

from common.config.errors import ConfigError, InvalidEntry
from common.config.opening import open_store
from common.config.store import ConfigStore
from penstock.doctor.finding import DoctorFinding

SUBJECT = "access to the configuration"


def access(url: str) -> Iterator[DoctorFinding]:
    """Findings about the store at that URL; none when there is no URL, and for a directory."""
    if not url.startswith("zookeeper:"):
        return
    try:
        with closing(open_store(url)) as store:
            wrong = store.wrong_access()
            words = _users(store)
    except ConfigError as error:
        yield DoctorFinding(SUBJECT, "missing", str(error), "no change is possible until it answers")
        return
    if not wrong:
        yield DoctorFinding(SUBJECT, "ok", words)
        return
    path, problem = wrong[0]
    more = f" ({len(wrong) - 1} more)" if len(wrong) > 1 else ""
    advice = "`penstock config verify` lists them, `penstock config repair` mends them"
    yield DoctorFinding(SUBJECT, "missing", f"{path}{more}: {problem}", advice)


def _users(store: ConfigStore) -> str:
    try:
        rights = [each.rights for each in store.users()]
    except InvalidEntry as error:
        return str(error)
    return f"{rights.count('writes')} users may change it, {rights.count('reads')} may read it and report"
