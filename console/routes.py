"""Routes of the console. A decorator beside the function that answers says all of a route: path, role, menu, sample.

The application, the menu, the palette, the API's document, and the tests that walk every page read `routes()`. An
endpoint that is not there is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar

from flask import request

from console.roles import Role

ROOMS = ("console.pages", "console.api")
IN_STORY = ""
"""The sample of a page that has no fixed address in the sample data: a story of the browser tests looks at it."""
Answer = TypeVar("Answer", bound=Callable[..., Any])


@dataclass(frozen=True)
class Route:
    """A route.

    Attributes:
        endpoint: module and function, by which Flask knows the route.
        role: the least role; a route has one, or it cannot be added.
        is_page: it answers a whole page of HTML, which the tests of accessibility look at.
        title: the page's name in the menu and the palette; empty: it is in neither.
        menu: place in the menu, among the pages of its role; 0: it is in the palette alone.
        samples: addresses of the page in the sample data of the browser tests and pictures.
        said: sentence on the page that follows the action.
        is_for_probes: it answers requests whose Host header names another host, or none.
    """

    path: str
    method: str
    role: Role
    endpoint: str
    answer: Callable[..., Any]
    is_page: bool = False
    title: str = ""
    menu: int = 0
    samples: Sequence[str] = ()
    said: str = ""
    is_for_probes: bool = False


def page(
    path: str, *, role: Role, title: str = "", menu: int = 0, sample: str | Sequence[str] | None = None
) -> Callable[[Answer], Answer]:  # fmt: skip
    """Answer GET with a page. `sample` may be left out where the path has no arguments: it is its own sample."""
    if sample is None:
        if "<" in path:
            raise TypeError(f"{path}: give a sample, or IN_STORY")
        sample = path
    if menu and not title:
        raise TypeError(f"{path}: an entry of the menu needs a title")
    samples = [sample] if isinstance(sample, str) else list(sample)
    shown = {"title": title, "menu": menu, "samples": [each for each in samples if each != IN_STORY]}
    return _adding(path, "GET", role, is_page=True, **shown)


def resource(path: str, *, role: Role, is_for_probes: bool = False) -> Callable[[Answer], Answer]:
    """Answer GET with what is no page: a file, a stream, a part of a page, the way to another site."""
    return _adding(path, "GET", role, is_for_probes=is_for_probes)


def action(path: str, *, role: Role, said: str = "") -> Callable[[Answer], Answer]:
    """Answer POST of a form. `said`: see `with_said`."""
    return _adding(path, "POST", role, said=said)


def _adding(path: str, method: str, role: Role, **more: Any) -> Callable[[Answer], Answer]:
    def register(answer: Answer) -> Answer:
        endpoint = f"{answer.__module__.rpartition('.')[2]}.{answer.__name__}"
        add(Route(path, method, role, endpoint, answer, **more))
        return answer

    return register


def add(route: Route) -> None:
    """Raises TypeError for a route without a role, or one of an endpoint that has a route."""
    if not isinstance(route.role, Role):
        raise TypeError(f"{route.method} {route.path}: give it a role")
    if route.endpoint in _routes:
        raise TypeError(f"{route.method} {route.path}: {route.endpoint} has a route already")
    _routes[route.endpoint] = route


_routes: dict[str, Route] = {}


@cache
def routes() -> Mapping[str, Route]:
    """All routes by endpoint, of every module in ROOMS."""
    for room in ROOMS:
        for module in iter_modules(import_module(room).__path__, f"{room}."):
            import_module(module.name)
    return _routes


def menu(role: Role) -> list[Route]:
    """The entries of the menu for a role: those of the least role first."""
    found = [each for each in routes().values() if each.menu and each.role <= role]
    return sorted(found, key=lambda each: (each.role, each.menu, each.title))


def titled_pages(role: Role) -> list[Route]:
    """Pages of the palette for a role: those of the menu first, in its order."""
    others = [each for each in routes().values() if each.title and not each.menu and each.role <= role]
    return menu(role) + sorted(others, key=lambda each: (each.role, each.title))


def with_said(path: str, fragment: str = "") -> str:
    """The address of a page that shows the sentence of the action that is being answered."""
    return f"{path}?said={request.endpoint}{fragment}"


def sentence(endpoint: str) -> str:
    """The sentence of an action; empty: it has none."""
    found = routes().get(endpoint)
    return found.said if found is not None else ""
