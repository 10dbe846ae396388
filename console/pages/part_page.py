"""Parts of pages that are asked for by a button: as they are where a script asks, else as a page of their own."""

from typing import Any

from flask import render_template, request
from flask.typing import ResponseReturnValue


def part_or_page(part: str, title: str, back: str, **shown: Any) -> ResponseReturnValue:
    """The part, or a page with it.

    Args:
        back: the path of the page that the part belongs to.
    """
    if request.headers.get("HX-Request") == "true":
        return render_template(part, **shown)
    return render_template("part_page.html", part=part, title=title, back=back, **shown)
