"""The result of a comparison as it is kept: it fits into its entry, whatever was compared."""

from types import SimpleNamespace

from common.admin.administrator import Administrator
from common.clock import FakeClock
from common.config.memory_store import MemoryConfigStore
from migration.plan import TOPICS_MAX
from migration.reconcile.comparison import Compared
from migration.reconcile.findings import Discrepancy, DiscrepancyKind
from migration.reconcile.plan_check import DIFFERENCES, KIND, CheckedTopic, PlanCheck
from migration.reconcile.spans import TimeSpan

LARGE = 10**15


def checked(number, findings=0):
    found = Compared(f"payments.settlement.eu.t{number:04d}", kafka=LARGE, engine=LARGE, windows=LARGE)
    kind = DiscrepancyKind.MISSING_IN_KAFKA
    offsets = tuple(range(LARGE, LARGE + 20))
    found.findings = [
        Discrepancy(kind, 0, 0, offsets, offsets, 1, 1, id="x" * 200) for _ in range(findings)
    ]  # fmt: skip
    found.counts[kind] = findings
    return CheckedTopic(found, None)


def test_the_result_of_the_largest_plan_fits_and_names_what_differs():
    store = MemoryConfigStore()
    plan = SimpleNamespace(name="big")
    check = PlanCheck(Administrator(store, "cli:ann@desk", FakeClock()), plan, None, None, None, print)
    check.keep(
        [checked(number, findings=number % 100 // 99 * 30) for number in range(TOPICS_MAX)], TimeSpan(None, None)
    )
    value = store.get(KIND, "big").value
    told = [row["topic"] for row in value["topics"] if any(row[name] for name in DIFFERENCES)]
    assert told == [f"payments.settlement.eu.t{number:04d}" for number in range(99, TOPICS_MAX, 100)]
    assert sum(row["kafka"] for row in value["topics"]) == TOPICS_MAX * LARGE
    assert value["topics"][-1]["topic"] == f"({TOPICS_MAX - len(value['topics']) + 1:,} others)"
    assert value["findings"]


def test_the_result_of_a_small_plan_is_kept_in_its_order():
    store = MemoryConfigStore()
    check = PlanCheck(
        Administrator(store, "cli:ann@desk", FakeClock()), SimpleNamespace(name="shop"), None, None, None, print
    )
    check.keep([checked(2), checked(1, findings=1)], TimeSpan(None, None))
    assert [row["topic"][-4:] for row in store.get(KIND, "shop").value["topics"]] == ["0002", "0001"]
