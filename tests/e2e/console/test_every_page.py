"""Every page in Chromium, with the sample data of a real Penstock: no serious findings of axe-core, light and dark, and none
is wider than a phone. The pages and their samples are those of `console.routes`.
"""

from contextlib import ExitStack

import pytest

from console.roles import Role
from console.routes import routes
from tests.e2e.console.axe import serious_findings
from tests.e2e.console.sample_installation import ENVIRONMENT, OPTIONS, fill, first_link, make_account

DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 800}


@pytest.fixture(scope="module")
def penstock(penstock_factory):
    return penstock_factory(*OPTIONS, environment=ENVIRONMENT)


@pytest.fixture(scope="module")
def base(penstock) -> str:
    return first_link(penstock).partition("/link/")[0]


@pytest.fixture(scope="module")
def ada(browser, penstock, base):
    """The administrator's window; the test fails at an error of a script or of the content policy."""
    context = browser.new_context(base_url=base, viewport=DESK)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    page.on(
        "console", lambda message: faults.append(f"{page.url}: {message.text}") if message.type == "error" else None
    )
    page.goto(first_link(penstock))
    make_account(page)
    with ExitStack() as opened:
        fill(penstock, page, opened)
        yield page
    assert faults == []
    context.close()


def findings_of(page, path: str) -> list[str]:
    """Faults of a page with all folded parts open: light in a wide window, dark in that of a phone."""
    found = []
    for scheme, size, rules in (("light", DESK, ()), ("dark", PHONE, ("color-contrast",))):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size(size)
        answer = page.goto(path)
        if answer.status != 200:
            found.append(f"status {answer.status}")
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        found += [f"{scheme}: {each}" for each in serious_findings(page, *rules)]
    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        found.append("it is wider than a phone")
    return found


def test_no_page_has_a_serious_finding_of_axe_or_is_wider_than_a_phone(ada, browser, base):
    visitor = browser.new_context(base_url=base)
    windows = {True: visitor.new_page(), False: ada}
    found = {
        sample: findings_of(windows[route.role == Role.NOBODY], sample)
        for route in routes().values() if route.is_page
        for sample in route.samples
    }  # fmt: skip
    visitor.close()
    assert len(found) > 40 and {path: each for path, each in found.items() if each} == {}
