"""`penstock migrate` on a file store, without a cluster: exit codes, one-line errors, what needs no Kafka."""

import json

import pytest
import yaml

from common.clock import SystemClock
from common.config import open_store
from common.contract import Code
from migration.entries import PlanStore, remove_mark, set_mark
from migration.facts import IN_ENGINE, IN_KAFKA, Facts, TopicFacts, WaitingCopies
from migration.plan import DOUBLE_READ, RECIPES, parse_plan
from migration.recipes.course import COMMANDS
from migration.recipes.registry import courses_of
from migration.report import sample_of
from penstock.commands.migrate.status import divergence_rows, topic_rows
from penstock.commands.migrate.work import total_behind
from tests.unit.penstock.test_admin_commands import run  # noqa: F401
from tests.unit.producer_proxy.journal.side import DualDesk

TEXT = "name: shop\nrecipe: mirror\ncluster: main\ntopics: [orders]\n"


@pytest.fixture
def stored(tmp_path, run):  # noqa: F811
    store = open_store((tmp_path / "config").as_uri())
    made = PlanStore(store, SystemClock(), "cli:ann@desk")
    made.add(parse_plan(TEXT, "plan"))
    yield made
    store.close()


def test_a_faulty_file_is_one_line_with_all_faults(run, tmp_path):  # noqa: F811
    (tmp_path / "plan.yaml").write_text("name: shop\nrecipe: copy\ntopics: [a, a]\n")
    told = run("migrate", "plan", str(tmp_path / "plan.yaml"), code=2).stderr
    assert 'recipe: "copy" is not one of' in told and '"a" is listed twice' in told and "cluster: null" in told


def test_an_unknown_cluster_and_an_unknown_plan_are_not_found(run, tmp_path):  # noqa: F811
    (tmp_path / "plan.yaml").write_text(TEXT)
    assert 'kafka "main": not found' in run("migrate", "plan", str(tmp_path / "plan.yaml"), code=3).stderr
    assert 'kafka "main": not found' in run("migrate", "inventory", "main", code=3).stderr
    for command in (*COMMANDS, "resume", "status"):
        assert 'plan "shop": not found' in run("migrate", command, "shop", code=3).stderr


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_dry_run_shows_each_sub_step_and_writes_nothing(run, stored, command, recipe):  # noqa: F811
    groups = "groups: [workers]\n" if recipe == DOUBLE_READ else ""
    stored.add(parse_plan(TEXT.replace("mirror", recipe) + groups, "plan"))
    before = stored.read("shop")
    rows = json.loads(run("migrate", command, "shop", "--dry-run", "-o", "json").stdout)
    course = courses_of(recipe)[command]
    assert [each["sub_step"] for each in rows] == [*course.sub_steps, *["compare"] * course.is_compared]
    assert all(each["does"] and each["takes"] and each["undo"] for each in rows)
    assert stored.read("shop") == before


def test_what_one_side_lacks_is_a_row_per_queue_with_the_first_ids_and_the_topics_number():
    waiting = WaitingCopies("producer_proxy@x", "orders", 30, ((1, "a"), (None, "b"), (1, "c")))
    rows = [(each["queue"], each["first_ids"], each["waiting"]) for each in divergence_rows(waiting)]
    assert rows == [(1, "a, c", 30), (None, "b", 30)]
    (row,) = divergence_rows(WaitingCopies("producer_proxy@x", "*", 4))
    assert (row["topic"], row["first_ids"], row["waiting"]) == ("*", "", 4)


def test_what_kafka_has_of_the_engines_own_messages_is_not_behind():
    cut = TopicFacts(home=IN_ENGINE, is_moved=True, kafka_ends=(988,), copied_in=(644,), has_copy_out=True)
    copied = TopicFacts(home=IN_KAFKA, kafka_ends=(30,), copied_in=(28,))
    assert [each["behind"] for each in topic_rows(Facts({"a": cut, "b": copied}))] == [None, 2]
    assert [total_behind(Facts(topics)) for topics in ({"a": cut}, {"a": cut, "b": copied})] == [None, 2]
    assert sample_of(Facts({"a": cut}), 0.0).behind_in is None


def test_the_status_of_all_plans_is_a_table_json_or_yaml(run, stored):  # noqa: F811
    table = run("migrate", "status").stdout.splitlines()
    assert table[0].split()[:2] == ["PLAN", "STEP"] and table[1].split()[:2] == ["shop", "planned"]
    told = json.loads(run("migrate", "status", "-o", "json").stdout)
    assert yaml.safe_load(run("migrate", "status", "-o", "yaml").stdout)[0]["digest"] == told[0]["digest"]


def test_the_history_says_who_and_what(run, stored):  # noqa: F811
    (row,) = json.loads(run("migrate", "status", "shop", "--history", "-o", "json").stdout)
    assert (row["who"], row["what"]) == ("cli:ann@desk", f"plan {stored.read('shop').plan.digest} stored")


def test_a_topic_of_a_plan_is_not_deleted(run, tmp_path):  # noqa: F811
    run("topic", "create", "orders")
    store = open_store((tmp_path / "config").as_uri())
    set_mark(store, "orders", "shop")
    told = run("topic", "delete", "orders", code=4).stderr
    assert "it is in migration plan shop: abort or retire that first" in told
    remove_mark(store, "orders", "shop")
    run("topic", "delete", "orders")
    store.close()


def test_a_plan_at_which_another_process_is_at_work_is_a_conflict(run, stored):  # noqa: F811
    with stored.at_work("shop"):
        told = run("migrate", "start", "shop", code=4).stderr
    assert "ann@desk on " in told and "is at work since" in told


def test_ids_that_the_secondary_of_a_dual_write_lacks_are_listed_from_the_journal_of_a_proxy(run, tmp_path):  # noqa: F811
    desk = DualDesk(tmp_path / "journal")
    desk.secondary.code = Code.UNAVAILABLE
    sent = desk.send(5)
    desk.stop()
    journal = str(tmp_path / "journal")
    (row,) = json.loads(run("migrate", "divergence", journal, "--stopped", "-o", "json").stdout)
    assert (row["topic"], row["what"], row["messages"], row["ids"]) == ("t", "primary only", 5, sent)
    shown = run("migrate", "divergence", journal, "--stopped").stdout
    assert f"{sent[0]}, {sent[1]}, {sent[2]}, and 2 more" in shown and sent[4] not in shown


def test_a_journal_of_equal_sides_says_so_and_a_missing_directory_is_refused_by_name(run, tmp_path):  # noqa: F811
    desk = DualDesk(tmp_path / "journal")
    desk.send(2)
    desk.stop()
    assert "divergence  none" in run("migrate", "divergence", str(tmp_path / "journal"), "--stopped").stdout
    assert "does not exist" in run("migrate", "divergence", str(tmp_path / "nowhere"), code=2).stderr
    assert (
        "holds no repair journal; its directory journal does"
        in run("migrate", "divergence", str(tmp_path), code=2).stderr
    )


LOST = {
    "process": "producer_proxy@127.0.0.1:1/a", "directory": "/journal",
    "topics": {"orders": {"messages": 12, "ids": [[3, "a"]]}},
}  # fmt: skip


def test_the_entry_of_a_lost_journal_is_removed_after_a_confirmation_with_what_may_be_missing(run, stored):  # noqa: F811
    store = stored._store
    store.put("journal", "j1", LOST, 0)
    assert "/journal (j1)" in run("migrate", "forget-journal", "/other", code=3).stderr
    told = run("migrate", "forget-journal", "/journal", code=1).stderr
    assert "12 messages of orders waited for their second side, the first: a" in told
    assert "Remove the entry?" in told and store.get("journal", "j1") is not None
    run("migrate", "forget-journal", "j1", "--yes")
    assert store.get("journal", "j1") is None


def test_the_entry_of_a_journal_at_work_is_not_removed_and_one_directory_of_two_journals_needs_the_id(run, stored):  # noqa: F811
    store = stored._store
    store.put("journal", "j1", LOST, 0)
    store.report_applied(LOST["process"], {"topic": 1})
    assert "is at work with it: it is not lost" in run("migrate", "forget-journal", "j1", "--yes", code=4).stderr
    store.put("journal", "j2", LOST, 0)
    assert "use the id of the lost one: j1, j2" in run("migrate", "forget-journal", "/journal", "--yes", code=4).stderr
    run("migrate", "forget-journal", "j1", "--yes")
    assert [name for name, _ in store.entries("journal")] == ["j2"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("positions", "shop", "--group", ""), 2, '--group ""'),
        (("positions", "shop", "--group", "a/b c"), 2, "--group"),
        (("verify", "shop", "--from", "2999-01-01T00:00:00Z"), 2, "before now"),
        (("verify", "shop", "--from", "1h", "--to", "2h"), 2, "before --to"),
        (("rehearse", "shop", "--out", "/dev/null/x"), 1, "--out /dev/null/x: "),
        (("report", "shop", "--out", "/dev/null/x"), 1, "--out /dev/null/x: "),
    ],
)
def test_a_value_that_leads_to_nothing_is_refused_before_the_work(run, stored, arguments, code, sentence):  # noqa: F811
    assert sentence in run("migrate", *arguments, code=code).stderr
