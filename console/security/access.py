"""The least role of each endpoint. An endpoint that is not in the table is refused."""

from collections.abc import Mapping

from console.roles import Role

ACCESS: Mapping[str, Role] = {
    "static": Role.NOBODY,
    "health.alive": Role.NOBODY,
    "health.ready": Role.NOBODY,
    "sign_in.form": Role.NOBODY,
    "sign_in.enter": Role.NOBODY,
    "sign_in.link": Role.NOBODY,
    "sign_in.use_link": Role.NOBODY,
    "sign_in.leave": Role.VIEWER,
    "own.show": Role.VIEWER,
    "own.set_password": Role.VIEWER,
    "home.show": Role.VIEWER,
    "topics.index": Role.VIEWER,
    "topics.show": Role.VIEWER,
    "groups.index": Role.VIEWER,
    "groups.show": Role.VIEWER,
    "applications.index": Role.VIEWER,
    "applications.show": Role.VIEWER,
    "map.show": Role.VIEWER,
    "charts.points": Role.VIEWER,
    "requests.index": Role.VIEWER,
    "requests.show": Role.VIEWER,
    "requests.applied": Role.VIEWER,
    "requests.form": Role.OWNER,
    "requests.check": Role.OWNER,
    "requests.ask": Role.OWNER,
    "requests.comment": Role.OWNER,
    "requests.submit": Role.OWNER,
    "requests.withdraw": Role.OWNER,
    "requests.approve": Role.OPERATOR,
    "requests.reject": Role.OPERATOR,
    "requests.retry": Role.OPERATOR,
    "messages.find": Role.OWNER,
    "messages.show": Role.OWNER,
    "messages.body": Role.OWNER,
    "messages.send": Role.OWNER,
    "alerts.index": Role.VIEWER,
    "alerts.change_rule": Role.OPERATOR,
    "alerts.silence": Role.OPERATOR,
    "alerts.end_silence": Role.OPERATOR,
    "channels.index": Role.ADMIN,
    "channels.add": Role.ADMIN,
    "channels.test": Role.ADMIN,
    "channels.switch": Role.ADMIN,
    "channels.remove": Role.ADMIN,
    "policy.form": Role.OPERATOR,
    "policy.change": Role.OPERATOR,
    "actions.index": Role.OPERATOR,
    "actions.export": Role.OPERATOR,
    "people.index": Role.ADMIN,
    "people.add": Role.ADMIN,
    "people.change": Role.ADMIN,
    "people.make_link": Role.ADMIN,
    "people.add_team": Role.ADMIN,
}


def least_role(endpoint: str) -> Role | None:
    """The role that an endpoint needs; None: it is not in the table and must not answer."""
    return ACCESS.get(endpoint)
