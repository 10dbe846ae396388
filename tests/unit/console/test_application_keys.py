"""Applications, keys and grants on pages and by the API: a secret is in one answer, and nowhere else."""

import json
import re
from dataclasses import replace
from functools import partial

import pytest

from common.admin import applications, audit
from common.admin.errors import StateConflict
from common.config.definitions import PULL_GROUP, PULL_TOPIC, SEND
from common.config.root_keys import RootKeys, root_keys_of
from common.credential import sign
from common.secret_file import ensure_key
from console.installation.configuration import Configuration
from console.installation.trial_messages import APPLICATION, TrialMessages
from console.watching.part_states import PartStates
from tests.unit.console.consoles import SETUP, text_of

SECRET = re.compile(r'class="once">([\w-]{43})<')
GRANTS = {"send": "orders.*, stock", "pull_topics": "orders.*", "pull_groups": "billing", "dead_letters": ""}


def made(console, **fields):
    operator = console.as_role("operator")
    answer = operator.post("/applications", **{"name": "shop", **GRANTS, **fields})
    return operator, answer


def stored(console):
    return applications.show(console.parts.configuration.admin("test"), "shop")[0]


def test_an_application_has_its_grants_and_its_secret_is_shown_once(console):
    operator, answer = made(console)
    secret = SECRET.search(answer.get_data(as_text=True))[1]
    assert stored(console).keys[0].secret == secret and answer.headers["Cache-Control"] == "no-store"
    assert {(grant.action, grant.pattern) for grant in stored(console).grants} == {
        (SEND, "orders.*"), (SEND, "stock"), (PULL_TOPIC, "orders.*"), (PULL_GROUP, "billing"),
    }  # fmt: skip
    later = operator.get("/applications/shop").get_data(as_text=True)
    told = json.dumps([console.parts.log.latest(""), audit.latest(console.store)], default=str)
    assert secret not in later and secret not in told and "create application" in told


def test_a_second_key_is_made_and_the_first_is_revoked(console):
    operator, _ = made(console)
    first = stored(console).keys[0].key_id
    second = SECRET.search(operator.post("/applications/shop/keys").get_data(as_text=True))[1]
    assert [key.secret for key in stored(console).keys][1] == second
    refused = operator.post("/applications/shop/keys")
    assert refused.status_code == 409 and "revoke one first" in text_of(refused)
    assert (
        operator.post(f"/applications/shop/keys/{first}/revoke").location
        == "/applications/shop?said=application_keys.revoke"
    )
    assert [key.secret for key in stored(console).keys] == [second]
    assert operator.post(f"/applications/shop/keys/{first}/revoke").status_code == 404


def test_grants_are_added_and_removed(console):
    operator, _ = made(console)
    assert operator.post("/applications/shop/grants", kind="send", pattern="web.*", action="add").status_code == 303
    assert stored(console).allows("send", "web.clicks")
    operator.post("/applications/shop/grants", kind="send", pattern="orders.*", action="remove")
    assert not stored(console).allows("send", "orders.paid")
    for fields in (
        {"kind": "everything", "pattern": "x"},
        {"kind": "send", "pattern": " "},
        {"kind": "send", "pattern": "<b>"},
    ):
        assert operator.post("/applications/shop/grants", action="add", **fields).status_code == 422


def test_a_faulty_form_creates_nothing_and_keeps_its_fields(console):
    operator, answer = made(console, name="<script>")
    assert answer.status_code == 422 and "<script>" not in answer.get_data(as_text=True).split("<main")[1]
    assert made_again(operator, "shop").status_code == 200
    taken = made_again(operator, "shop")
    assert (
        taken.status_code == 422
        and "exists already" in text_of(taken)
        and 'value="orders.*, stock"' in taken.get_data(as_text=True)
    )


def made_again(operator, name):
    return operator.post("/applications", **{"name": name, **GRANTS})


def test_the_page_shows_the_last_use_of_each_key(console):
    operator, _ = made(console)
    key = stored(console).keys[0].key_id
    assert "not known" in text_of(operator.get("/applications/shop"))
    console.parts.sampler.pages.states = replace(PartStates(), key_uses={("shop", key): 1_790_000_000_000})
    assert "2026-09-21" in operator.get("/applications/shop").get_data(as_text=True)


def test_the_api_does_the_same(console):
    operator = console.as_role("operator")
    with console.app.test_request_context():
        token = console.parts.tokens.make(SETUP, operator.session.account, "test", "operator", 1)
    headers = {"Authorization": f"Bearer {token}"}

    def post(path, **value):
        return console.visitor().post(f"/api/v1{path}", json=value, headers=headers)

    made = post("/applications", name="shop", send=["orders"]).get_json()
    assert stored(console).keys[0].secret == made["secret"]
    second = post("/applications/shop/keys").get_json()
    assert post(f"/applications/shop/keys/{made['key_id']}/revoke").get_json() == {
        "application": "shop", "revoked": made["key_id"],
    }  # fmt: skip
    assert [key.key_id for key in stored(console).keys] == [second["key_id"]]
    assert post("/applications/shop/grants", pull_groups=["billing"]).status_code == 200
    assert stored(console).allows(PULL_GROUP, "billing")


def test_with_a_root_key_the_console_shows_a_secret_once_and_stores_none(console, tmp_path):
    path = ensure_key(tmp_path / "secrets.key")
    held = console.parts.configuration
    root_keys = partial(root_keys_of, str(path))
    console.with_parts(configuration=Configuration(held.store, held.view, console.clock, root_keys=root_keys))
    operator, answer = made(console)
    secret = SECRET.search(answer.get_data(as_text=True))[1]
    (key,) = stored(console).keys
    assert root_keys().secret_of("shop", key) == secret
    told = json.dumps([console.parts.log.latest(""), audit.latest(console.store)], default=str)
    assert secret not in told + str(console.store.get("application", "shop").value)
    assert secret not in operator.get("/applications/shop").get_data(as_text=True)
    path.chmod(0o644)
    refused = operator.post("/applications/shop/keys")
    assert refused.status_code == 422 and "chmod 600" in text_of(refused), "no secret is stored in clear instead"
    assert len(stored(console).keys) == 1


def test_a_test_messages_secret_is_derived_and_a_missing_root_key_is_named(console):
    held, roots = console.parts.configuration, [RootKeys([bytes(range(32))])]
    configuration = Configuration(held.store, held.view, console.clock, root_keys=lambda: roots[0])
    trial, admin = TrialMessages(configuration), configuration.admin("test")
    credential = trial._credential(admin)
    key = applications.show(admin, APPLICATION)[0].key(credential.key_id)
    assert sign(roots[0].secret_of(APPLICATION, key), *(credential.app, key.key_id, credential.issued_at_ms)) == (
        credential.signature
    )
    roots[0] = RootKeys()
    with pytest.raises(StateConflict, match="does not have the root key"):
        trial._credential(admin)
