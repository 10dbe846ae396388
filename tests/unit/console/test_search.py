"""The search over all names, which the command palette shows too."""

import re

import pytest

from common.config.store import Change
from tests.unit.console.consoles import text_of

TOPIC = {"queues": 1, "durability": "fsync", "body_bytes_max": 10}


@pytest.fixture
def filled(console):
    console.store.put_many("topic", [Change(f"shop.events.{number:03d}", TOPIC, 0) for number in range(120)])
    console.store.put("group", "shop-billing", {}, 0)
    console.store.put("application", "Shop", {}, 0)
    return console


def links(answer) -> list[str]:
    return re.findall(r'href="([^"]+)" data-hit', answer.get_data(as_text=True).replace("&amp;", "&"))


def test_names_of_all_kinds_are_found_in_any_case_and_each_link_leads_to_its_page(filled):
    browser = filled.as_role("admin")
    answer = browser.get("/search?q=SHOP")
    assert {"/topics/shop.events.000", "/groups/shop-billing", "/applications/Shop"} <= set(links(answer))
    assert "Topics 120" in text_of(answer) and "All 120 topics" in text_of(answer)
    assert "/masking" in links(browser.get("/search?q=mask"))
    pages = [path for path in links(browser.get("/search")) if not path.startswith("/groups/")]
    assert {browser.get(path).status_code for path in pages} == {200}


def test_pages_follow_each_other_to_the_last_name(filled):
    browser, path, seen = filled.as_role("viewer"), "/search?q=events&kind=topic", []
    for _ in range(10):
        found = links(browser.get(path))
        following = [each for each in found if each.startswith("/search")]
        seen += [each for each in found if each.startswith("/topics/")]
        if not following:
            break
        path = following[0]
    assert seen == [f"/topics/shop.events.{number:03d}" for number in range(120)]


def test_a_role_finds_the_pages_that_it_may_open_and_no_other(filled):
    assert not {"/people", "/audit", "/requests/new"} & set(links(filled.as_role("viewer").get("/search")))
    assert "/requests/new" in links(filled.as_role("owner").get("/search"))
    operator = set(links(filled.as_role("operator").get("/search")))
    assert "/audit" in operator and "/people" not in operator


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "\u202egnp", "%00", "😀" * 300, "'\"><img src=x>", "../etc"]
)
def test_hostile_text_is_text_and_finds_nothing(filled, text):
    browser = filled.as_role("viewer")
    answer = browser.client.get("/search", query_string={"q": text, "kind": "../x", "after": text})
    assert answer.status_code == 200 and "<script>alert" not in answer.get_data(as_text=True)
    assert "<img src=x" not in answer.get_data(as_text=True) and "Nothing has" in text_of(answer)


def test_the_palette_gets_the_part_without_the_page(filled):
    part = filled.as_role("viewer").get("/search?q=shop", headers={"HX-Request": "true"}).get_data(as_text=True)
    assert "<html" not in part and 'id="hits-topic"' in part
