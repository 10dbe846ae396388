"""The administrative commands on a file store: output, exit codes, one line an error, no secrets where they do not belong."""

import json
from contextlib import closing

import pytest
import yaml
from click.testing import CliRunner

from common.config import open_store
from common.config.root_keys import load_root_keys
from common.secret_file import ensure_key
from penstock.__main__ import cli


@pytest.fixture
def run(tmp_path):
    (tmp_path / "config").mkdir()

    def run_it(*arguments, code=0, env=None, **options):
        result = CliRunner().invoke(
            cli, list(arguments), env={"PENSTOCK_DATA": str(tmp_path), **(env or {})}, **options
        )
        assert result.exit_code == code, result.output
        if code > 2 or (code == 2 and "Usage" not in result.stderr):
            assert len(result.stderr.splitlines()) == 1
        return result

    return run_it


def test_topics_are_created_and_listed_as_json(run):
    run("topic", "create", "b", "a", "--queues", "4", "--durability", "memory")
    rows = json.loads(run("topic", "list", "-o", "json").stdout)
    same = {"kind": "topic", "queues": 4, "durability": "memory", "body_bytes_max": 4 << 20}
    assert rows == [{"name": name, **same} for name in "ab"]


@pytest.mark.parametrize("kind", ["application", "group", "topic", "family"])
def test_a_list_shows_the_others_and_warns_of_an_entry_that_cannot_be_read(run, tmp_path, kind):
    verb, name = {"application": "app", "family": "topic"}.get(kind, kind), "b*" if kind == "family" else "b"
    run(verb, "create", "a")
    with closing(open_store((tmp_path / "config").as_uri())) as store:
        store.put(kind, name, {"keys": 7, "order": "a later one", "queues": "many"}, 0)
    result = run(verb, "list", "-o", "json")
    assert [row["name"] for row in json.loads(result.stdout)] == ["a"]
    assert result.stderr.startswith("warning: left out, this version cannot read it: ") and name in result.stderr


def test_a_table_has_a_header_and_aligned_columns(run):
    run("topic", "create", "a-longer-name", "b")
    header, first, second = run("topic", "list").stdout.splitlines()
    assert header.index("QUEUES") == first.index("8") == second.index("8")


def test_every_list_and_entry_is_shown_wide_and_as_yaml_too(run):
    run("group", "create", "readers", "--topic", "orders")
    short, wide = (run("group", "list", "-o", output).stdout.splitlines() for output in ("table", "wide"))
    assert max(map(len, short)) <= 80 and "RETRY" not in short[0] and "RETRY" in wide[0]
    assert "  no" in short[1] and "first_ms 1000, factor 2.0" in wide[1] and "{" not in wide[1]
    assert yaml.safe_load(run("group", "list", "-o", "yaml").stdout) == json.loads(
        run("group", "list", "-o", "json").stdout
    )
    assert yaml.safe_load(run("group", "show", "readers", "-o", "yaml").stdout)["retry"]["first_ms"] == 1000


def test_a_list_without_entries_says_so_beside_its_header(run):
    result = run("topic", "list")
    assert (result.stdout.split()[0], result.stderr) == ("NAME", "none\n")


def test_names_come_from_a_file_too(run, tmp_path):
    (tmp_path / "names").write_text("".join(f"t{i}\n\n" for i in range(500)))
    assert "500 topics created" in run("topic", "create", "--from", str(tmp_path / "names")).stdout
    assert len(json.loads(run("topic", "list", "-o", "json", "--prefix", "t1").stdout)) == 111


def test_a_wrong_line_of_the_file_is_named_and_nothing_is_created(run, tmp_path):
    (tmp_path / "names").write_bytes(b"good\n\nbad name\n\xff\xfe,8\nq,0\n")
    error = run("topic", "create", "--from", str(tmp_path / "names"), code=2).stderr
    assert 'line 3: "bad name": invalid name' in error
    assert "line 4: " in error
    assert 'line 5: "q": queues: 0 is out of range' in error
    assert json.loads(run("topic", "list", "-o", "json").stdout) == []


def test_names_come_from_stdin_and_those_that_exist_are_skipped_when_asked_to(run):
    run("topic", "create", "a", "--queues", "2")
    lines = "# mine\na\nb,5,memory\n"
    assert "1 of 2 exist already" in run("topic", "create", "--from", "-", input=lines, code=4).stderr
    result = run("topic", "create", "--from", "-", "--skip-existing", input=lines)
    assert "1 existed already" in result.stderr
    rows = json.loads(run("topic", "list", "-o", "json").stdout)
    assert [(row["name"], row["queues"]) for row in rows] == [("a", 2), ("b", 5)]


def test_an_empty_file_creates_nothing(run):
    assert "0 topics created" in run("topic", "create", "--from", "-", input="# nothing\n").stdout


def test_a_page_says_what_there_is_beyond_it(run):
    run("topic", "create", *"abc")
    run("topic", "create", "a*", "--family")
    page = run("topic", "list", "--limit", "2")
    assert [line.split()[0] for line in page.stdout.splitlines()[1:]] == ["a", "a*"]
    assert "2 of 4 shown: use --after a* for the next page" in page.stderr
    assert [line.split()[0] for line in run("topic", "list", "--after", "a*").stdout.splitlines()[1:]] == ["b", "c"]
    counts = json.loads(run("topic", "list", "--count", "--prefix", "a", "-o", "json").stdout)
    assert counts == {"prefix": "a", "families": 1, "topics": 1}


def test_a_family_is_created_shown_for_its_topics_set_and_deleted(run):
    run("topic", "create", "metrics.*", "--family", "--queues", "4", "--durability", "memory")
    run("topic", "create", "metrics.own", "--queues", "9")
    assert "defined_by      family metrics.*" in run("topic", "show", "metrics.cpu").stdout
    assert "defined_by" not in run("topic", "show", "metrics.own").stdout
    assert 'topic "other": not found' in run("topic", "show", "other", code=3).stderr
    run("topic", "set", "metrics.*", "--queues", "6")
    assert json.loads(run("topic", "show", "metrics.cpu", "-o", "json").stdout)["queues"] == 6
    assert json.loads(run("topic", "show", "metrics.*", "-o", "json").stdout)["kind"] == "family"
    deleted = json.loads(run("topic", "delete", "metrics.own", "-o", "json").stdout)
    assert deleted == {"deleted": "metrics.own", "defined_by": "family metrics.*"}


def test_a_family_is_deleted_with_a_warning_when_the_engine_cannot_be_asked(run):
    run("topic", "create", "metrics.*", "--family")
    assert "the engine could not be asked" in run("topic", "delete", "metrics.*").stderr
    run("topic", "delete", "metrics.*", code=3)


@pytest.mark.parametrize(
    "arguments", [["m.*"], ["m.", "--family"], ["m.*", "--family", "--skip-existing"], ["a*b", "--family"]]
)
def test_a_star_is_for_families_and_families_are_for_stars(run, arguments):
    run("topic", "create", *arguments, code=2)


def test_what_does_not_exist_is_exit_code_3(run):
    assert 'topic "nope"' in run("topic", "show", "nope", code=3).stderr
    run("app", "rotate", "nope", code=3)
    run("group", "delete", "nope", code=3)


def test_a_conflict_is_exit_code_4(run):
    run("topic", "create", "a")
    run("topic", "create", "a", code=4)
    run("topic", "set", "a", "--queues", "2", code=4)


def test_a_wrong_value_is_exit_code_2_with_all_faults(run):
    error = run("topic", "create", "a/b", "--queues", "0", code=2).stderr
    assert 'topic "a/b": invalid name: use 1–249' in error
    assert "queues: 0 is out of range: use 1 to 10,000" in error


def test_no_instance_is_exit_code_5_and_says_how_to_start_one(run, tmp_path):
    assert "penstock up --data" in run("topic", "list", "--data", str(tmp_path / "none"), code=5).stderr


def test_a_configuration_url_wins_over_the_data_directory(run, tmp_path):
    run("topic", "create", "a", "--config", f"file://{tmp_path}/other")
    assert open_store(f"file://{tmp_path}/other").names("topic") == ["a"]
    assert run("topic", "list", "-o", "json").stdout.strip() == "[]"


def test_a_wrong_url_is_exit_code_2(run):
    run("topic", "list", "--config", "ftp://x", code=2)


def test_a_secret_is_shown_once_and_never_again(run):
    key = json.loads(run("app", "create", "shop", "-o", "json").stdout)
    assert key.keys() == {"app", "key_id", "secret"}
    later = [
        run("app", "show", "shop"),
        run("app", "list", "-o", "json"),
        run("app", "grant", "shop", "--send", "orders*", "--pull", "orders*", "--dead-letters", "readers"),
        run("app", "rotate", "shop"),
        run("app", "revoke", "shop", key["key_id"]),
        run("app", "create", "shop", code=4),
    ]
    assert key["secret"] not in "".join(result.output for result in later)


def test_grants_are_repeatable_and_shown(run):
    run("app", "create", "shop")
    run("app", "grant", "shop", "--send", "orders*", "--send", "audit", "--pull", "both")
    run("app", "grant", "shop", "--pull-topic", "orders", "--pull-group", "readers", "--dead-letters", "r*")
    shown = json.loads(run("app", "show", "shop", "-o", "json").stdout)
    assert (shown["send"], shown["pull_topics"]) == (["orders*", "audit"], ["both", "orders"])
    assert (shown["pull_groups"], shown["dead_letters"]) == (["both", "readers"], ["r*"])
    assert (
        "use --send, --pull, --pull-topic, --pull-group or --dead-letters" in run("app", "grant", "shop", code=2).stderr
    )
    assert "grant dead letters" in run("app", "grant", "shop", "--pull-topic", "_dlq.readers", code=2).stderr
    run("app", "ungrant", "shop", "--send", "audit")
    assert json.loads(run("app", "show", "shop", "-o", "json").stdout)["send"] == ["orders*"]


def test_groups_are_created_set_and_deleted(run):
    run("group", "create", "readers", "--topic", "a", "--topic", "b")
    group = json.loads(run("group", "set", "readers", "--invisible-ms", "500", "-o", "json").stdout)
    assert (group["topics"], group["invisible_ms"]) == (["a", "b"], 500)
    grown = run(
        "group", "set", "readers", "--retry", "first_ms=100,factor=3", "--attempts-max", "5", "-o", "json"
    ).stdout
    assert json.loads(grown)["retry"] == {"first_ms": 100, "factor": 3.0, "max_ms": 60_000, "jitter": 0.2}
    listed = run("group", "set", "readers", "--retry", "100, 2000", "-o", "json").stdout
    assert (json.loads(listed)["retry"], json.loads(listed)["attempts_max"]) == ([100, 2000], 5)
    for wrong in ("soon", "first_ms=x", "1,,2", "jitter=7", "speed=9"):
        assert "a list of 1 to 100 delays" in run("group", "set", "readers", "--retry", wrong, code=2).stderr
    run("group", "delete", "readers")


@pytest.mark.parametrize("command", [["topic", "set", "a"], ["app", "grant", "a"], ["topic", "create"]])
def test_a_command_that_would_do_nothing_is_wrong_usage(run, command):
    run(*command, code=2)


def test_send_without_a_running_instance_is_exit_code_5(run):
    run("send", "orders", "hello", code=5)


def test_a_secret_is_no_option_and_its_absence_is_wrong_usage(run):
    run("send", "orders", "x", "--app", "shop", "--key-id", "k", "--producer", "127.0.0.1:1", code=2)
    assert "no such option" in run("send", "orders", "x", "--secret", "s", code=2).stderr.lower()


def test_a_process_that_does_not_follow_is_named_in_a_warning(run, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.terminal.instance.APPLIED_S_MAX", 0.05)
    store = open_store(f"file://{tmp_path}/config")
    store.report_applied("producer_proxy@127.0.0.1:1", {"topic": 0})
    assert "not yet applied by producer_proxy@127.0.0.1:1" in run("topic", "create", "a").stderr
    store.close()


@pytest.mark.parametrize("command", ["topic", "group", "app", "send", "pull"])
def test_help_has_examples(run, command):
    assert f"penstock {command} " in run(command, "--help").stdout


def test_a_topics_own_retention_is_set_shown_and_taken_back(run):
    run("topic", "create", "short", "--retention-hours", "1.5", "--retention-mib", "64")
    shown = run("topic", "show", "short").stdout
    assert "retention_hours" in shown and "1.5" in shown and "64" in shown
    run("topic", "set", "short", "--retention-hours", "0")
    shown = run("topic", "show", "short").stdout
    assert "retention_hours" not in shown and "retention_mib" in shown


def test_a_filter_is_checked_and_a_wrong_one_shown_with_a_caret(run):
    assert json.loads(run("filter", "check", "a==1 && !b", "-o", "json").stdout) == {
        "style": "header",
        "meaning": "a = 1 AND (NOT (b = TRUE))",
    }
    wrong = CliRunner().invoke(cli, ["filter", "check", "a BETWEEN 10 AND 0"])
    assert wrong.exit_code == 2
    assert wrong.stderr.splitlines() == [
        "cli filter check: at character 11: nothing lies between these: the first is the greater one",
        "a BETWEEN 10 AND 0",
        " " * 10 + "^",
    ]


def test_limits_are_set_shown_and_taken_away(run):
    run("topic", "create", "a")
    run("topic", "create", "m.*", "--family", "--rate-messages", "7")
    shown = json.loads(run("topic", "set", "a", "--rate-messages", "50", "--rate-bytes", "1000", "-o", "json").stdout)
    assert (shown["rate_messages"], shown["rate_bytes"]) == (50, 1000)
    assert json.loads(run("topic", "show", "m.x", "-o", "json").stdout)["rate_messages"] == 7
    assert "rate_messages" not in run("topic", "set", "a", "--rate-messages", "0").stdout
    run("app", "create", "shop")
    assert json.loads(run("app", "set", "shop", "--rate-bytes", "9", "-o", "json").stdout)["rate_bytes"] == 9
    assert json.loads(run("group", "create", "g", "--rate-messages", "3", "-o", "json").stdout)["rate_messages"] == 3
    assert json.loads(run("gate", "show", "-o", "json").stdout)["rate_messages"] == 0
    run("gate", "set", "--rate-messages", "900")
    assert json.loads(run("gate", "set", "--rate-bytes", "5", "-o", "json").stdout)["rate_messages"] == 900


@pytest.mark.parametrize(
    "arguments",
    [("topic", "set", "a"), ("app", "set", "a"), ("group", "set", "a"), ("gate", "set")],
)
def test_a_wrong_limit_is_refused_before_anything_is_written(run, arguments):
    result = run(*arguments, "--rate-messages", "-5", code=2)
    assert "rate_messages: -5 is out of range: use 0 to" in result.stderr


def test_a_groups_filters_are_set_shown_and_taken_back(run):
    run("group", "create", "g", "--filter", "paid || refunded")
    run("group", "set", "g", "--topic-filter", "orders", "amount > 3", "--topic-filter", "refunds", "*")
    shown = json.loads(run("group", "show", "g", "-o", "json").stdout)
    assert shown["filter"] == "paid || refunded"
    assert shown["topic_filters"] == {"orders": "amount > 3", "refunds": "*"}
    run("group", "set", "g", "--filter", "", "--topic-filter", "orders", "")
    shown = json.loads(run("group", "show", "g", "-o", "json").stdout)
    assert (shown["filter"], shown["topic_filters"]) == ("", {})


def test_a_groups_wrong_filter_is_refused_with_a_caret_and_changes_nothing(run):
    run("group", "create", "g", "--filter", "a = 1")
    wrong = CliRunner().invoke(cli, ["group", "set", "g", "--topic-filter", "orders", "a = #"])
    assert wrong.exit_code == 2
    assert wrong.stderr.splitlines()[1:] == ["a = #", "    ^"]
    assert json.loads(run("group", "show", "g", "-o", "json").stdout)["filter"] == "a = 1"


def test_an_applications_networks_are_checked_shown_and_cleared(run):
    run("app", "create", "shop")
    shown = run("app", "set", "shop", "--address", "10.1.0.0/16", "--address", "192.0.2.7", "-o", "json").stdout
    assert json.loads(shown)["addresses"] == ["10.1.0.0/16", "192.0.2.7/32"]
    error = run("app", "set", "shop", "--address", "10.1.0.9/16", code=2).stderr
    assert 'addresses: "10.1.0.9/16" is not an IP address or network' in error
    assert "addresses" not in json.loads(run("app", "set", "shop", "--address", "", "-o", "json").stdout)


def test_rules_and_grade_of_a_topic_are_set_and_shown(run):
    run("topic", "create", "a", "--body-format", "json", "--grade", "low", "--required-property", "tenant")
    shown = json.loads(run("topic", "show", "a", "-o", "json").stdout)
    assert (shown["body_format"], shown["grade"], shown["required_properties"]) == ("json", "low", ["tenant"])
    changed = json.loads(run("topic", "set", "a", "--required-property", "", "--grade", "normal", "-o", "json").stdout)
    assert "required_properties" not in changed and "grade" not in changed
    error = run("topic", "set", "a", "--required-property", "x" * 300, code=2).stderr
    assert "required_properties: a text of 300 characters: use texts of 1 to 256 characters" in error


def test_grades_and_features_are_switched_off_and_on_by_hand(run):
    run("gate", "set", "--grade-off", "low", "--feature-off", "delay", "--queue-ms", "100")
    shown = json.loads(run("gate", "show", "-o", "json").stdout)
    assert (shown["grades_off"], shown["features_off"], shown["queue_ms"]) == (["low"], ["delay"], 100)
    shown = json.loads(run("gate", "set", "--grade-off", "", "-o", "json").stdout)
    assert (shown["grades_off"], shown["features_off"]) == ([], ["delay"])
    assert "--grade-off" in run("gate", "set", "--grade-off", "middling", code=2).stderr


def test_a_group_of_an_undefined_topic_is_made_with_a_warning(run):
    run("topic", "create", "orders")
    run("topic", "create", "metrics.*", "--family")
    topics = ("--topic", "orders", "--topic", "metrics.cpu", "--topic", "_dlq.g")
    assert run("group", "create", "g", *topics).stderr == ""
    warned = run("group", "set", "g", *topics, "--topic", "no-such-topic").stderr
    assert warned.splitlines() == [
        "warning: topic no-such-topic: not defined: pulls report it as unknown until it is created: "
        "check the name, or use `penstock topic create no-such-topic`"
    ]
    assert "no-such-topic" in run("group", "create", "h", "--topic", "no-such-topic").stderr


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_mistyped_group_is_not_paused_and_not_made(run, verb):
    assert "not defined" in run("group", verb, "typo", code=3).stderr
    assert json.loads(run("group", "list", "-o", "json").stdout) == []


def test_the_last_key_that_is_revoked_is_told(run):
    first = json.loads(run("app", "create", "shop", "-o", "json").stdout)["key_id"]
    second = json.loads(run("app", "rotate", "shop", "-o", "json").stdout)["key_id"]
    assert run("app", "revoke", "shop", first).stderr == ""
    assert "has no key left" in run("app", "revoke", "shop", second).stderr


def test_a_topic_made_again_is_told_apart_also_by_a_clock_that_is_behind(run, tmp_path, monkeypatch):
    def made_ms():
        store = open_store((tmp_path / "config").absolute().as_uri())
        try:
            return store.get("topic", "orders").value["made_ms"]
        finally:
            store.close()

    run("topic", "create", "orders", "--queues", "8")
    first = made_ms()
    run("topic", "set", "orders", "--rate-messages", "5")
    assert made_ms() == first
    run("topic", "delete", "orders")
    monkeypatch.setattr("common.clock.SystemClock.now_ms", lambda self: first - 600_000)
    run("topic", "create", "orders", "--queues", "2")
    assert made_ms() == first + 1


def test_a_purge_deletes_what_it_has_counted_and_asks_first(run, monkeypatch):
    asked = []

    def answer(instance, verb, **options):
        asked.append(options)
        return {"main": {"purged": [{"queue": 0, "first": 2, "end": 12}, {"queue": 3, "first": 0, "end": 1_000}]}}

    monkeypatch.setattr("penstock.terminal.engines.ask_all", answer)
    monkeypatch.setattr("penstock.terminal.instance.Instance.engines", lambda instance: {"main": ("", 0)})
    result = run("topic", "purge", "orders", input="n\n", code=1)
    assert "Delete 1,010 messages of topic orders?" in result.stderr
    assert asked == [{"topic": "orders"}]
    assert json.loads(run("topic", "purge", "orders", "--yes", "-o", "json").stdout) == {
        "topic": "orders",
        "purged": 1_010,
    }
    assert asked[2] == {"topic": "orders", "ends": {"0": 12, "3": 1_000}}
    assert json.loads(run("audit", "-o", "json").stdout)[0]["action"] == "purge"


def test_an_applications_quotas_are_set_and_shown_with_their_use(run, monkeypatch):
    run("app", "create", "shop")
    run("app", "set", "shop", "--groups-max", "50", "--family-topics-max", "0")
    shown = json.loads(run("app", "show", "shop", "-o", "json").stdout)
    assert [shown[name] for name in ("groups_max", "groups_created")] == [50, None]  # no engine runs
    answers = {"main": {"groups": 3, "family_topics": 0}, "two": {"groups": 7, "family_topics": 0}}
    monkeypatch.setattr("penstock.terminal.engines.ask_all", lambda instance, verb, **options: answers)
    shown = json.loads(run("app", "show", "shop", "-o", "json").stdout)
    assert [shown[name] for name in ("groups_created", "family_topics_max", "family_topics_created")] == [7, 0, 0]


def test_app_check_says_which_grant_allows_a_call_or_what_would(run):
    run("topic", "create", "orders")
    run("app", "create", "shop", "--send", "ord*", "--pull-topic", "orders")
    assert "ord*" in run("app", "check", "shop", "send", "orders").stdout
    refused = run("app", "check", "shop", "pull", "orders", "readers", code=1)
    assert "to allow it: penstock app grant shop --pull-group 'readers'" in refused.stdout
    run("app", "grant", "shop", "--pull-group", "readers")
    allowed = json.loads(run("app", "check", "shop", "pull", "orders", "readers", "-o", "json").stdout)
    assert allowed["allowed"] and allowed["checks"][2]["grant"] == "readers"
    assert allowed["remarks"] == ["group readers has no definition: it is made by its first pull"]
    assert "topic nosuch is not defined" in run("app", "check", "shop", "send", "nosuch", code=1).stdout
    assert "did you mean shop?" in run("app", "check", "shpo", "send", "orders", code=3).stderr
    run("app", "check", "shop", "send", "orders", "readers", code=2)


def test_app_check_prints_no_control_character_of_a_name(run):
    run("app", "create", "shop")
    told = run("app", "check", "shop", "send", "a\u202eb\n", code=1).stdout
    assert "note: topic a\\u202eb\\n is not defined" in told and "\u202e" not in told


def test_the_audit_of_a_kind_that_there_is_not_is_refused_with_the_closest_one(run):
    run("topic", "create", "orders")
    assert "did you mean topic?" in run("audit", "--kind", "topc", code=2).stderr
    assert [row["names"] for row in json.loads(run("audit", "--kind", "topic", "-o", "json").stdout)] == [["orders"]]
    assert json.loads(run("audit", "--kind", "progress", "-o", "json").stdout) == []
    assert run("audit", code=5, env={"PENSTOCK_DATA": "/nowhere"}).stderr.count("no Penstock: start one") == 1


def test_where_the_directory_has_root_keys_no_command_stores_a_secret(run, tmp_path):
    key = ensure_key(tmp_path / "secrets.key")
    made = json.loads(run("app", "create", "shop", "-o", "json").stdout)
    with closing(open_store((tmp_path / "config").as_uri())) as store:
        value = store.get("application", "shop").value
    assert made["secret"] not in str(value) and value["keys"] == []
    (shown,) = json.loads(run("app", "show", "shop", "-o", "json").stdout)["keys"]
    assert (shown["key_id"], shown["root"]) == (made["key_id"], *load_root_keys(key).ids)
    assert f"secret derived from root key {shown['root']}" in run("app", "show", "shop").stdout
    said = run("config", "export").stderr
    assert "1 keys need root keys that are not in the export" in said and shown["root"] in said


def test_another_configuration_gets_the_root_keys_of_the_option_or_the_context_only(run, tmp_path):
    own, other = ensure_key(tmp_path / "secrets.key"), ensure_key(tmp_path / "other.key")
    elsewhere = (tmp_path / "elsewhere").as_uri()
    first = json.loads(run("app", "create", "one", "--config", elsewhere, "-o", "json").stdout)
    run("app", "create", "two", "--config", elsewhere, "--secrets-key", str(other))
    with closing(open_store(elsewhere)) as store:
        clear, derived = (store.get("application", name).value for name in ("one", "two"))
    assert clear["keys"][0]["secret"] == first["secret"]
    assert derived["derived_keys"][0]["root"] == load_root_keys(other).ids[0] != load_root_keys(own).ids[0]
    assert first["app"] == "one" and "1 application with 1 key whose secrets are in clear" in (
        run("config", "export", "--config", elsewhere).stderr
    )


def test_a_file_of_root_keys_that_cannot_be_used_ends_the_command_and_stores_nothing(run, tmp_path):
    for content, rule in ((b"short", "5 bytes: use at least 32"), (b"k" * 64, "text in place of random bytes")):
        ensure_key(tmp_path / "secrets.key").write_bytes(content)
        assert rule in run("app", "create", "shop", code=2).stderr
    assert json.loads(run("app", "list", "-o", "json").stdout) == []


def test_doctor_names_secrets_in_clear_and_root_keys_that_are_missing(run, tmp_path):
    def of_secrets(*options):
        found = json.loads(run("doctor", "-o", "json", *options).stdout)["findings"]
        return [(each["state"], each["words"]) for each in found if each["subject"] == "secrets of applications"]

    run("app", "create", "clear")
    ensure_key(tmp_path / "secrets.key")
    run("app", "create", "shop")
    ((state, words),) = of_secrets()
    assert (
        state == "note" and words.startswith("1 application with 1 key whose secrets are in clear") and "clear" in words
    )
    run("app", "delete", "clear", "--yes")
    assert of_secrets() == [("ok", "none in clear, 1 derived from root keys")]
    (_, (state, words)) = of_secrets("--secrets-key", str(ensure_key(tmp_path / "other.key")))
    assert state == "note" and "1 keys need root key r-" in words
