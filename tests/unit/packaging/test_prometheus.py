"""The alert rules and the dashboard: Prometheus accepts them, and every metric in them exists."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from penstock.metrics_reference import page, sections
from tests.services import require

ROOT = Path(__file__).parents[3]
RULES = ROOT / "packaging" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "packaging" / "grafana" / "penstock.json"
OF_PROMETHEUS = re.compile(r"_(bucket|sum|count)$")


def promtool(*arguments):
    require(shutil.which("promtool"), "promtool is missing: apt install prometheus")
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def panels():
    return [each for each in json.loads(DASHBOARD.read_text())["panels"] if each["type"] != "row"]


def expressions():
    """Every expression of the rules and of the dashboard."""
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    targets = [target for panel in panels() for target in panel["targets"]]
    return [each["expr"] for each in (*rules, *targets)]


def test_prometheus_accepts_the_rules_and_they_fire_and_rest_as_their_tests_say():
    promtool("check", "rules", RULES)
    promtool("test", "rules", RULES.with_name("alerts_test.yml"))


def test_prometheus_accepts_the_expressions_of_the_dashboard(tmp_path):
    records = [
        {"record": f"dashboard:{number}", "expr": text.replace("$__rate_interval", "1m")}
        for number, text in enumerate(expressions())
    ]
    file = tmp_path / "dashboard.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": records}]}))
    promtool("check", "rules", file)


def test_every_metric_in_an_expression_is_one_of_the_reference():
    known = {row.name for rows in sections().values() for row in rows}
    used = {OF_PROMETHEUS.sub("", name) for text in expressions() for name in re.findall(r"penstock_[a-z_]+", text)}
    assert len(used) > 30 and used <= known, used - known


def test_panels_have_a_title_an_explanation_and_places_that_do_not_overlap():
    places = set()
    for panel in panels():
        assert panel["title"] and panel["description"].endswith(".")
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & places
        places |= cells


def test_every_rule_says_what_is_noticed_and_what_to_do():
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"].endswith(".") and rule["annotations"]["action"].endswith((".", "?"))
            assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_the_page_of_metrics_is_generated_from_the_code():
    assert (ROOT / "docs" / "metrics.md").read_text() == page(), (
        "run: python -m penstock.metrics_reference > docs/metrics.md"
    )


@pytest.mark.parametrize("section", sections())
def test_names_of_metrics_keep_to_the_rule(section):
    for row in sections()[section]:
        assert not row.name.endswith(("_per_s", "_ms", "_mib", "_kb")), row.name
        assert "timestamp" in row.name or "Unix time" not in row.unit, row.name
