"""Configuration URLs."""

import pytest

from common.config.errors import InvalidEntry
from common.config.opening import open_store
from common.config.zookeeper_options import ZooKeeperOptions


def test_a_file_url_opens_a_directory_also_with_spaces(tmp_path):
    store = open_store(f"file://{tmp_path}/my%20config")
    store.put("topic", "a", {}, 0)
    assert (tmp_path / "my config" / "topic" / "index").exists()
    store.close()


@pytest.mark.parametrize("url", ["", "config", "http://x/y", "file://host/x", "zookeeper:///x", "file:"])
def test_another_url_is_refused_with_the_two_forms(url):
    with pytest.raises(InvalidEntry, match="file:///DIR or zookeeper://"):
        open_store(url)


def test_zookeeper_options_come_from_the_query():
    options = ZooKeeperOptions.from_parts("h1:1,h2:2", "/a/b/", {"session_timeout_s": "4", "auth_file": "/x"})
    assert options == ZooKeeperOptions("h1:1,h2:2", "/a/b", auth_file="/x", session_timeout_s=4.0)


def test_all_wrong_zookeeper_options_are_named_at_once():
    with pytest.raises(InvalidEntry) as caught:
        ZooKeeperOptions.from_parts("u:p@h1", "", {"session_timeout_s": "soon", "password": "x"})
    assert all(part in str(caught.value) for part in ("session_timeout_s", "password: unknown", "use auth_file"))


def test_an_auth_file_that_others_may_read_is_refused(tmp_path):
    path = tmp_path / "auth"
    path.write_text("user:password\n")
    path.chmod(0o644)
    with pytest.raises(InvalidEntry, match="chmod 600"):
        ZooKeeperOptions("h", auth_file=str(path)).auth()


def test_a_credential_that_systemd_gives_takes_the_place_of_the_auth_file_and_its_group_may_read_it(
    tmp_path, monkeypatch
):
    (tmp_path / "given").mkdir()
    path = tmp_path / "given" / "zookeeper.auth"
    path.write_text("user:of the unit\n")
    path.chmod(0o440)  # as systemd makes it: the mask of an access list that names the service's user
    options = ZooKeeperOptions("h", auth_file="/nowhere/zookeeper.auth")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "given"))
    assert options.auth() == [("digest", "user:of the unit")]
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    with pytest.raises(InvalidEntry, match=r"/nowhere/zookeeper\.auth: cannot be read"):
        options.auth()
