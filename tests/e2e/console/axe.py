"""Accessibility checks by axe-core 4.14.1 from npm, unchanged in tests/vendor."""

from pathlib import Path

from playwright.sync_api import Page

SCRIPT = (Path(__file__).parents[2] / "vendor" / "axe.min.js").read_text()
SERIOUS = ("serious", "critical")


def serious_findings(page: Page, *rules: str) -> list[str]:
    """The serious and critical findings on the page as it is now. Without rules: of all.

    The script runs beside the page's content policy.
    """
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(SCRIPT)
    options = {"resultTypes": ["violations"], "preload": False, **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("(options) => axe.run(document, options)", options)["violations"]
    return [
        f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:120]} {each['nodes'][0].get('failureSummary', '')[:300]}"
        for each in found
        if each["impact"] in SERIOUS
    ]
