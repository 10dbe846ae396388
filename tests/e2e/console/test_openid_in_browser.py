"""Sign-in by OpenID Connect in Chromium: a real console, and the provider oidc-provider-mock at another site."""

import json
import logging
import os
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from common.clock import SystemClock
from console.database.accounts import Accounts
from console.database.action_log import ActionLog, Actor
from console.database.console_database import ConsoleDatabase

oidc_provider_mock = pytest.importorskip("oidc_provider_mock")


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A console with one administrator, as a process of its own, and its provider."""
    folder = tmp_path_factory.mktemp("openid")
    (folder / "data").mkdir()
    database = ConsoleDatabase(f"sqlite:///{folder / 'data' / 'console.db'}")
    database.migrate()
    accounts = Accounts(database, ActionLog(database, SystemClock()), SystemClock())
    accounts.add(Actor("setup", ""), "ada", "admin", [])
    database.close()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    reader, writer = os.pipe()
    with oidc_provider_mock.run_server_in_thread() as provider:
        line = [
            sys.executable, "-P", "-m", "console", "--config", (folder / "config").as_uri(), "--data", str(folder / "data"),
            "--listen", "127.0.0.1:0", "--ready-fd", str(writer), "--openid-client", "console",
            "--openid-issuer", f"http://localhost:{provider.server_port}",
        ]  # fmt: skip
        secret = {**os.environ, "PENSTOCK_CONSOLE_OPENID_SECRET": "a secret"}
        with subprocess.Popen(line, pass_fds=[writer], stderr=subprocess.DEVNULL, env=secret) as process:
            os.close(writer)
            with os.fdopen(reader) as facts:
                yield json.loads(facts.readline())["url"]
            process.terminate()


def test_a_person_comes_in_by_the_provider_and_goes_out(browser, url):
    context = browser.new_context(base_url=url)
    page = context.new_page()
    faults: list[str] = []

    def note(message) -> None:
        if message.type == "error" and message.location["url"].startswith(url):  # the provider's page has its own
            faults.append(message.text)

    page.on("console", note)
    page.goto("/alerts")
    page.get_by_role("link", name="Sign in by localhost").click()
    page.locator("[name=sub]").fill("olga@example.org")
    page.get_by_role("button", name="Authorize").click()
    expect(page.get_by_role("heading", name="Alerts")).to_be_visible()
    expect(page.locator(".me")).to_contain_text("olga@example.org viewer")
    cookies = {each["name"]: each for each in context.cookies()}
    assert set(cookies) == {"penstock"} and cookies["penstock"]["httpOnly"]
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("status")).to_contain_text("You are signed out.")
    assert page.goto("/alerts").url.endswith("/sign-in?next=/alerts")
    assert faults == []
    context.close()
