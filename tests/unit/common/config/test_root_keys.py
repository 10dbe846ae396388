"""Root keys and the secrets that are derived from them: vectors, several keys in a file, and files that cannot be used."""

import base64
import hashlib
import hmac
import os

import pytest

from common.config.definitions import DerivedKey, Key
from common.config.errors import InvalidEntry
from common.config.root_keys import RootKeys, load_root_keys, root_keys_of

FIRST, SECOND = bytes(range(32)), bytes(range(100, 132))


def put(path, content, mode=0o600):
    path.touch(0o600)
    path.write_bytes(content)
    path.chmod(mode)
    return path


def test_the_vectors_stay_as_they_are_since_applications_hold_the_secrets():
    roots = RootKeys([FIRST, SECOND])
    assert roots.ids == ("r-5122c22e50", "r-463c42284a")
    made = [
        roots.secret_of("shop", DerivedKey("k-0123456789", "AAAAAAAAAAAAAAAAAAAAAA", each, 1)) for each in roots.ids
    ]
    assert made == ["ylkEC-KpxuHg4RczeXYnexPnLUhZv1MQYAlPeovx-G4", "BACIRZZS0r3LTNMBlWED5LiizBuSotum7kAyickZWa0"]


def test_a_secret_is_the_hmac_that_the_design_note_says():
    roots = RootKeys([FIRST])
    key, secret = roots.new_key("shop", "k-1", 7)
    text = f"penstock-secret/1\nshop\nk-1\n{key.salt}".encode()
    wanted = base64.urlsafe_b64encode(hmac.digest(FIRST, text, hashlib.sha256)).decode().rstrip("=")
    assert secret == wanted == roots.secret_of("shop", key) and len(secret) == 43
    assert (key.root, key.created_at_ms) == (roots.ids[0], 7)


def test_application_key_salt_and_root_key_each_make_another_secret():
    roots = RootKeys([FIRST, SECOND])
    one, other = roots.ids
    found = {
        roots.secret_of(app, DerivedKey(key_id, salt, root, 0))
        for app in ("shop", "till") for key_id in ("k-1", "k-2") for salt in ("a" * 22, "b" * 22) for root in (one, other)
    }  # fmt: skip
    assert len(found) == 16
    assert len({roots.new_key("shop", "k-1", 0)[1] for _ in range(20)}) == 20, "each has a salt of its own"


def test_the_first_root_key_makes_new_secrets_and_those_of_all_are_known():
    old, turned = RootKeys([FIRST]), RootKeys([SECOND, FIRST])
    key, secret = old.new_key("shop", "k-1", 0)
    assert turned.secret_of("shop", key) == secret
    assert turned.new_key("shop", "k-2", 0)[0].root == RootKeys([SECOND]).ids[0]
    assert RootKeys([SECOND]).secret_of("shop", key) is None


def test_without_a_root_key_a_new_secret_is_stored_in_clear():
    key, secret = RootKeys().new_key("shop", "k-1", 0)
    assert isinstance(key, Key) and key.secret == secret
    assert RootKeys([FIRST]).secret_of("shop", key) == secret, "keys of before stay valid"
    assert RootKeys().secret_of("shop", None) is None


def test_a_file_of_two_keys_has_both_in_order(tmp_path):
    path = put(tmp_path / "secrets.key", SECOND + FIRST)
    assert load_root_keys(path).ids == RootKeys([SECOND, FIRST]).ids
    assert root_keys_of(None).ids == () and root_keys_of(str(path)).ids == load_root_keys(path).ids


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"", "0 bytes: use at least 32"),
        (FIRST[:31], "31 bytes: use at least 32"),
        (FIRST + SECOND[:5], "37 bytes: use 1 to 16 keys of 32 bytes each"),
        (os.urandom(32 * 17), "544 bytes: use 1 to 16 keys"),
        (os.urandom(1 << 20), "1,048,576 bytes: use 1 to 16 keys"),
        (FIRST + SECOND + FIRST, "the same key is in it twice: keep each once"),
        (FIRST.hex().encode(), "text in place of random bytes"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_option_the_file_and_the_rule(tmp_path, content, rule):
    path = put(tmp_path / "secrets.key", content)
    with pytest.raises(InvalidEntry) as caught:
        load_root_keys(path)
    said = str(caught.value)
    assert said.startswith(f"--secrets-key {path}: ") and rule in said
    assert FIRST.hex() not in said


def test_a_file_that_others_may_read_or_that_is_none_is_refused(tmp_path):
    with pytest.raises(InvalidEntry, match="chmod 600"):
        load_root_keys(put(tmp_path / "open.key", FIRST, 0o644))
    with pytest.raises(InvalidEntry, match="no such file"):
        load_root_keys(tmp_path / "none.key")
    with pytest.raises(InvalidEntry, match="not a regular file"):
        load_root_keys(tmp_path)


def test_neither_a_root_key_nor_a_secret_is_in_what_python_shows():
    roots = RootKeys([FIRST])
    key, secret = roots.new_key("shop", "k-1", 0)
    shown = f"{roots!r} {key!r} {RootKeys().new_key('shop', 'k-2', 0)[0]!r}"
    assert secret not in shown and repr(FIRST) not in shown and FIRST.hex() not in shown and "secret" not in shown
