"""The page with client code: what it fills in, and what it never shows."""

import pytest

from common.admin import applications
from console.client_code.examples import LANGUAGES
from tests.unit.console.consoles import text_of


@pytest.fixture
def viewer(console):
    console.as_role("owner").ask()
    console.as_role("operator").post("/requests/1/approve", version="1")
    return console.as_role("viewer")


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_a_program_with_the_names_that_were_given(console, viewer, language):
    made = applications.create(console.parts.configuration.admin("cli"), "shop")
    page = text_of(viewer.get(f"/topics/orders/code?language={language}&app=shop&group=billing"))
    for part in ("shop", "billing", "orders", made.key_id, "PENSTOCK_SECRET", LANGUAGES[language].file):
        assert part in page
    assert made.secret not in page and "@" not in page.partition("<pre")[2].partition("</pre>")[0]


def test_an_application_that_is_not_there_gets_a_hint(viewer):
    assert "There is no application" in text_of(viewer.get("/topics/orders/code?app=nobody"))


@pytest.mark.parametrize("name", ["a'b", 'a"; system("x")', "a b", "<b>"])
def test_a_name_that_could_end_a_literal_makes_no_program(viewer, name):
    answer = viewer.get("/topics/orders/code", query_string={"app": "shop", "group": name})
    assert answer.status_code == 200 and "Invalid name" in text_of(answer) and "<pre" not in text_of(answer)


def test_a_language_or_topic_that_is_not_there_is_not_found(viewer):
    assert viewer.get("/topics/orders/code?language=cobol").status_code == 404
    assert viewer.get("/topics/nothing/code").status_code == 404
