"""Search over all names: pages, topics, groups and applications. The command palette shows the same answer in a dialog."""

from typing import Any
from urllib.parse import quote

from flask import render_template, request
from flask.typing import ResponseReturnValue

from console.parts import account, parts
from console.roles import Role
from console.routes import page, titled_pages

TEXT_CHARS_MAX = 249
FIRST, PAGE = 6, 50
KINDS = {"topic": "Topics", "group": "Groups", "application": "Applications"}


@page("/search", role=Role.VIEWER, sample="/search?q=orders")
def find() -> ResponseReturnValue:
    """What has the text in its name: the first few of each kind, or a page of one kind."""
    text = request.args.get("q", "").strip()[:TEXT_CHARS_MAX]
    kind, after = request.args.get("kind", ""), request.args.get("after", "")
    shown = {"text": text, "kind": kind if kind in KINDS else "", "after": after, "found": _found(text, kind, after)}
    is_part = request.headers.get("HX-Request") == "true"
    return render_template("home/search_results.html" if is_part else "home/search.html", **shown)


def _found(text: str, kind: str, after: str) -> list[dict[str, Any]]:
    """The kinds that have a hit, each with its rows, their number in all, and the paths of the other ones."""
    rows = [] if kind in KINDS else [_pages(text)]
    if text:
        kinds = [kind] if kind in KINDS else list(KINDS)
        rows += [_names(each, text, after if kind else "", PAGE if kind else FIRST) for each in kinds]
    return [each for each in rows if each["rows"]]


def _pages(text: str) -> dict[str, Any]:
    wanted, role = text.casefold(), account().role
    rows = [(each.title, each.path) for each in titled_pages(role) if wanted in each.title.casefold()]
    return {"kind": "page", "title": "Pages", "rows": rows, "total": len(rows), "next": ""}


def _names(kind: str, text: str, after: str, limit: int) -> dict[str, Any]:
    page = parts().configuration.names.page(kind, text, after, limit)
    rows = [(name, f"/{kind}s/{quote(name, safe='')}") for name in page.names]
    following = ""
    if page.after:
        following = f"/search?q={quote(text)}&kind={kind}" + (f"&after={quote(page.after)}" if limit == PAGE else "")
    return {"kind": kind, "title": KINDS[kind], "rows": rows, "total": page.total, "next": following}
