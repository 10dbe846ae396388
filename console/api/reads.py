"""Operations that change nothing."""

from typing import Any

from flask import request
from werkzeug.exceptions import NotFound

from common.admin import declared, gate
from common.config.definitions import ApplicationDefinition, TopicDefinition
from common.names import is_name
from console.api.operations import TEXT, WHOLE, document, number_of_query, operation
from console.asking.team_quota import TeamQuota
from console.installation import migration_plans
from console.installation.processes import process_states
from console.installation.queue_states import lags_of_topic, queue_states, total_lag
from console.pages import charts
from console.pages.connections import FILTERS
from console.pages.migrations import allowed_commands, plan_of_name
from console.pages.quotas import quotas_of_teams
from console.pages.topics import QUEUES_SHOWN
from console.pages.traffic import state_of_traffic
from console.parts import parts
from console.roles import Role
from console.watching.alert_watch import shown_subject
from migration.entries import PlanEntry

PAGE_MAX = 1_000
PAGED = {"q": TEXT, "after": TEXT, "limit": WHOLE}


@operation("GET", "/openapi.json", Role.NOBODY, "This document.")
def openapi() -> Any:
    return document("1")


def _page(kind: str) -> dict[str, Any]:
    limit = max(1, number_of_query("limit", 50, PAGE_MAX))
    text, after = request.args.get("q", "")[:249], request.args.get("after", "")
    found = parts().configuration.names.page(kind, text, after, limit)
    return {"names": found.names, "total": found.total, "after": found.after or None}


@operation("GET", "/topics", Role.VIEWER, "Names of topics, a page at a time.", PAGED)
def topics() -> Any:
    return _page("topic")


@operation("GET", "/topics/{name}", Role.VIEWER, "One topic: settings, version, owner, queues, groups with their lag.")
def topic(name: str) -> Any:
    found = parts().configuration.topic(name)
    if found is None or not isinstance(found.definition, TopicDefinition):
        raise NotFound(f"There is no topic {name[:249]} and no family for it.")
    with parts().brokers.open() as opened:
        queues, faults = queue_states(parts().brokers, opened, name, min(found.definition.queues, QUEUES_SHOWN))
        lags, _ = lags_of_topic(parts().brokers, opened, name)
    owner = parts().requests.owner_of(name)
    return {
        "name": name, "settings": found.definition.to_value(), "version": found.version,
        "family": found.definition.family, "team": owner[1] if owner else None,
        "description": owner[2] if owner else None, "queues": [each._asdict() for each in queues],
        "groups": [each._asdict() for each in lags], "faults": faults,
    }  # fmt: skip


@operation("GET", "/groups", Role.VIEWER, "Names of groups that are defined, a page at a time.", PAGED)
def groups() -> Any:
    return _page("group")


@operation("GET", "/groups/{name}", Role.VIEWER, "One group: settings, version, lag per queue.")
def group(name: str) -> Any:
    found = parts().configuration.group(name) if is_name(name) else None
    with parts().brokers.open() as opened:
        answer = parts().brokers.ask(opened, "lag", "queues", group=name, detail=True) if is_name(name) else None
    if answer is None or (found is None and not answer.rows and not answer.faults):
        raise NotFound(f"Group {name[:249]} is not defined and has never pulled.")
    return {
        "name": name, "settings": found.definition.to_value() if found else None,
        "version": found.version if found else None, "queues": answer.rows, "faults": answer.faults,
        "lag": total_lag(name, answer.rows).lag if answer.rows else None,
    }  # fmt: skip


@operation("GET", "/applications", Role.VIEWER, "Names of applications, a page at a time.", PAGED)
def applications() -> Any:
    return _page("application")


@operation("GET", "/applications/{name}", Role.VIEWER, "One application, without its secrets.")
def application(name: str) -> Any:
    found = parts().configuration.application(name)
    if found is None or not isinstance(found.definition, ApplicationDefinition):
        raise NotFound(f"There is no application {name[:249]}.")
    return {"name": name, "settings": found.definition.without_secrets(), "version": found.version}


@operation("GET", "/connections", Role.VIEWER, "Clients that are connected to the proxies, the longest connected first.",
           {"application": TEXT, "group": TEXT, "topic": TEXT, "limit": WHOLE})  # fmt: skip
def connections() -> Any:
    wanted = {name: request.args.get(name, "")[:249] for name in FILTERS}
    told = parts().connections.told(wanted, max(1, number_of_query("limit", 50, PAGE_MAX)))
    return {"connections": [each._asdict() for each in told.rows], "total": told.total, "faults": told.faults}


@operation(
    "GET",
    "/map",
    Role.VIEWER,
    "Brokers, processes with what they have not applied yet, breakers, buffers, Kafka clusters.",
)
def installation() -> Any:
    states = parts().sampler.pages.states
    told = ("breakers", "buffers", "kafka", "contacts")
    return {
        **{name: [each._asdict() for each in getattr(states, name)] for name in told},
        "reasons": dict(states.reasons),
        "brokers": [each._asdict() for each in parts().brokers.states()],
        "processes": [each._asdict() for each in process_states(parts().configuration.admin("console"))],
        "version": parts().configuration.view.version,
    }


@operation("GET", "/limits", Role.OPERATOR, "What every producer proxy accepts, and the version of these settings.")
def limits() -> Any:
    found, version = gate.show_versioned(parts().configuration.admin("console"))
    return {"settings": found.to_value(), "version": version}


@operation(
    "GET",
    "/traffic",
    Role.OPERATOR,
    "Broker groups with the messages that they take, and the topics that are placed in some of them.",
)
def traffic() -> Any:
    found = state_of_traffic()
    return {
        "broker_groups": [
            {"name": each.name, "writes": each.writes, "topics": found["counts"][each.name]} for each in found["groups"]
        ],
        "topics": [
            {"name": topic.name, "broker_groups": topic.broker_groups, "shares": [each._asdict() for each in shares]}
            for topic, shares in found["rows"]
        ],
        "total": found["total"],
    }


@operation("GET", "/migrations", Role.VIEWER, "Plans of moves between Kafka and the engine.")
def migrations() -> Any:
    found, faults = migration_plans.plans(parts().configuration.admin("console"))
    return {"plans": [_plan(each) for each in found], "faults": faults}


@operation(
    "GET", "/migrations/{name}", Role.VIEWER, "One plan: state, what it waits for, commands that it allows, history."
)
def migration(name: str) -> Any:
    admin = parts().configuration.admin("console")
    entry = plan_of_name(name)
    facts = migration_plans.facts_of(admin, entry)
    told = parts().migrations.lines(name)
    return {
        **_plan(entry), "text": entry.plan.text, "waits_for": migration_plans.waiting_for(admin, entry),
        "allowed": allowed_commands(entry, facts), "comparison": migration_plans.comparison(admin, name),
        "history": [vars(each) for each in entry.history], "lines": told.lines,
    }  # fmt: skip


def _plan(entry: PlanEntry) -> dict[str, Any]:
    return {
        "name": entry.plan.name, "recipe": entry.plan.recipe, "cluster": entry.plan.cluster, "version": entry.version,
        "topics": list(entry.plan.topic_names), "state": entry.state.to_value(), "since_ms": entry.since_ms,
        "operator": entry.operator,
    }  # fmt: skip


@operation(
    "GET", "/history", Role.VIEWER, "Points of figures of a subject.", {"subject": TEXT, "names": TEXT, "range": TEXT}
)
def history() -> Any:
    return charts.chart_points()


@operation("GET", "/alerts", Role.VIEWER, "Open alerts, the latest that have ended, rules and silences.")
def alerts() -> Any:
    def shown(alert: Any) -> dict[str, Any]:
        own = {name: value for name, value in vars(alert).items() if name not in ("open_key", "is_told")}
        return {**own, "subject_in_words": shown_subject(alert.subject)}

    return {
        "open": [shown(each) for each in parts().alerts.open()],
        "ended": [shown(each) for each in parts().alerts.resolved()],
        "rules": [vars(each) for each in parts().alert_watch.rules()],
        "silences": [each._asdict() for each in parts().alerts.silences()],
    }


@operation(
    "GET", "/audit", Role.OPERATOR, "The newest records of actions.", {"q": TEXT, "before": WHOLE, "limit": WHOLE}
)
def audit() -> Any:
    before_id, limit = number_of_query("before", 0, 1 << 53), number_of_query("limit", 50, PAGE_MAX)
    return {"records": parts().log.latest(request.args.get("q", "")[:100], before_id, max(1, limit))}


@operation("GET", "/policy", Role.OPERATOR, "The policy for approval without a person.")
def policy() -> Any:
    value, version = parts().policy()
    return {"policy": value.to_value(), "version": version}


@operation("GET", "/quotas", Role.OPERATOR, "What each team holds and may hold.")
def quotas() -> Any:
    return {
        "teams": [
            {
                "team_id": team.id, "team": team.name, "held": parts().quota_check.held(team.id)._asdict(),
                "quota": TeamQuota(**own.value).to_value(), "version": own.version,
            }
            for team, own in quotas_of_teams()
        ]
    }  # fmt: skip


@operation("GET", "/export", Role.VIEWER, "Topics, families and groups as `apply` takes them.", {"prefix": TEXT})
def export() -> Any:
    return declared.export(parts().configuration.admin("console"), request.args.get("prefix", "")[:249])
