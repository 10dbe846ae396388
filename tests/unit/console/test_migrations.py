"""Plans of moves on pages: read from the store without a client of Kafka, and commands as processes of their own."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from common.admin import topics
from common.admin.topics import TopicSettings
from common.clock import SystemClock
from common.config import open_store
from common.config.definitions import CutRecord
from console.installation.migration_runs import MigrationRuns
from migration.entries import PlanStore, set_mark
from migration.plan import parse_plan
from migration.recipes.course import PlanStep
from tests.unit.console.consoles import text_of
from tests.waiting import until

TEXT = "name: shop\nrecipe: mirror\ncluster: main\ntopics: [orders]\ngates: {lag_messages: 70}\n"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def plans(console):
    made = PlanStore(console.store, console.clock, "cli:ann@desk")
    made.add(parse_plan(TEXT, "plan"))
    return made


def move(plans: PlanStore, **changes) -> None:
    entry = plans.read("shop")
    plans.write(entry, replace(entry.state, **changes), "moved by the test")


def runnable(console, tmp_path, *options: str):
    told = options or ("--config", "file:///none")
    return console.with_parts(migrations=MigrationRuns(tmp_path / "migrations", told, lambda: ("127.0.0.1", 1)))


def buttons(browser) -> list[str]:
    page = browser.get("/migrations/shop").get_data(as_text=True)
    return [name for name in COMMANDS if f'href="/migrations/shop/{name}"' in page]


COMMANDS = ("start", "verify", "fence", "cut", "soak", "rollback", "retire", "abort", "resume")


def test_a_plan_is_shown_with_its_gates_wait_and_history(console, plans):
    browser = console.as_role("viewer")
    assert "shop" in text_of(browser.get("/migrations"))
    page = text_of(browser.get("/migrations/shop"))
    assert "an operator: start is next" in page and "at most 70" in page and "cli:ann@desk" in page
    assert "There was none" in page and "orders" in page and buttons(browser) == []
    check = {
        "at_ms": 5, "from_ms": None, "to_ms": None, "findings": [
            {"topic": "orders", "queue": 1, "what": "missing in engine", "id": "<i>", "kafka_offsets": [3], "engine_offsets": []}],
        "topics": [{"topic": "orders", "kafka": 10, "engine": 9, "windows": 1, "differing": 1, "missing_in_engine": 1,
                    "missing_in_kafka": 0, "doubled_in_engine": 0, "doubled_in_kafka": 0, "altered": 0, "superseded": 0}],
    }  # fmt: skip
    console.store.put("migration_check", "shop", check, 0)
    answer = browser.get("/migrations/shop")
    assert "1 ids differ" in text_of(answer) and "<i>" not in answer.get_data(as_text=True)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (PlanStep.PLANNED, ["start", "abort"]), (PlanStep.COPYING, ["verify", "abort"]),
        (PlanStep.VERIFIED, ["verify", "fence", "cut", "rollback", "abort"]), (PlanStep.CUT, ["verify", "soak", "rollback"]),
        (PlanStep.SOAKING, ["verify", "rollback", "retire"]), (PlanStep.RETIRED, []), (PlanStep.ABORTED, []),
    ],
)  # fmt: skip
def test_buttons_are_the_commands_that_the_runbook_allows_now(console, plans, tmp_path, step, expected):
    move(plans, step=step)
    operator = runnable(console, tmp_path).as_role("operator")
    assert buttons(operator) == expected
    for command in COMMANDS:
        status = operator.get(f"/migrations/shop/{command}").status_code
        assert status == (200 if command in expected else 409), command


def test_a_command_at_work_can_be_resumed_or_aborted_and_says_what_it_does(console, plans, tmp_path):
    move(plans, step=PlanStep.COPYING, course="verify", sub_step="caught_up")
    operator = runnable(console, tmp_path).as_role("operator")
    assert buttons(operator) == ["abort", "resume"]
    assert "caught up of verify" in text_of(operator.get("/migrations/shop")).replace("_", " ")
    assert "caught up" in text_of(operator.get("/migrations/shop/resume"))
    moved = operator.post("/migrations/shop/resume", version="1")
    assert moved.status_code == 409 and "moved on meanwhile" in text_of(moved)


def test_a_topic_that_has_moved_cannot_be_aborted(console, plans, tmp_path):
    admin = console.parts.configuration.admin("cli")
    topics.create(admin, ["orders"], TopicSettings())
    found = console.store.get("topic", "orders")
    ends = [1] * found.value["queues"]
    cut = CutRecord("shop", 1, 7, "main", "t", tuple(ends), tuple(ends)).to_value()
    console.store.put("topic", "orders", {**found.value, "cut": cut}, found.version)
    set_mark(console.store, "orders", "shop")
    move(plans, step=PlanStep.VERIFIED, course="cut", sub_step="switch")
    assert "abort" not in buttons(runnable(console, tmp_path).as_role("operator"))


def test_a_command_runs_as_a_process_of_its_own_whose_lines_are_shown_and_whose_author_is_the_person(console, tmp_path):
    """The plan is of a cluster that is not defined, so the real command ends at once, with a sentence."""
    store = open_store((tmp_path / "config").as_uri())
    made = PlanStore(store, SystemClock(), "cli:ann@desk")
    made.add(parse_plan(TEXT, "plan"))
    plans_here = PlanStore(console.store, console.clock, "x")
    plans_here.add(parse_plan(TEXT, "plan"))
    key = tmp_path / "admin.key"
    key.write_bytes(b"k" * 32)
    key.chmod(0o600)
    options = ("--config", (tmp_path / "config").as_uri(), "--admin-key", str(key))
    operator = runnable(console, tmp_path, *options).as_role("operator", "otto")
    version = str(plans_here.read("shop").version)
    assert operator.post("/migrations/shop/start", version=version).status_code == 303
    again = operator.post("/migrations/shop/start", version=version)
    assert again.status_code == 409, "one at a time"
    lines = console.parts.migrations.lines
    until(lambda: not lines("shop").is_running, "the command has ended", 30)
    page = text_of(operator.get("/migrations/shop"))
    assert "otto: penstock migrate start shop" in page and "ended with exit code" in page
    assert made.read("shop").operator.startswith("console:otto on ")
    assert "Connection refused" in text_of(operator.get("/migrations/shop/positions")), "no engine runs here"
    (row,) = console.parts.log.latest("migrate start")
    assert (row["who"], row["subject"]) == ("otto", "plan shop")
    store.close()


def test_a_plan_that_this_version_cannot_read_hides_no_other(console, plans):
    console.store.put("migration", "later", {"text": "x"}, 0)
    browser = console.as_role("viewer")
    page = text_of(browser.get("/migrations"))
    assert "shop" in page and "this version cannot read it" in page
    assert browser.get("/migrations/later").status_code in (409, 422)
    for name in ("nothing", "a b", "<b>"):
        assert browser.get(f"/migrations/{name}").status_code == 404


def test_pages_of_plans_load_no_client_of_kafka():
    code = (
        "import sys\n"
        "for name in ('kafka', 'confluent_kafka'): sys.modules[name] = None\n"
        "import console.pages.migrations, console.__main__\n"
        "print([name for name in sys.modules if name.startswith(('kafka_bridge.connecting', 'common.kafka.drivers'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_while_the_store_is_away_pages_of_plans_and_limits_say_so(console, plans):
    browser = console.as_role("operator")
    console.store.set_available(False, console.clock.now_ms())
    for path in ("/migrations", "/migrations/shop", "/migrations/shop/live", "/limits"):
        answer = browser.get(path)
        assert answer.status_code == 503 and "configuration store" in text_of(answer), path
