"""The files of a Kafka cluster's definition: read, followed, and refused where they do not belong to the bridge."""

import pytest

from common.config.definitions import KafkaClusterDefinition
from common.kafka.errors import ClusterUnreachable
from kafka_bridge.connecting import FILES_LOOK_S, FollowedConnection, connection_of


@pytest.fixture
def files(tmp_path):
    (tmp_path / "password").write_text("first\n")
    (tmp_path / "ca.pem").write_text("authority 1")
    return tmp_path


def cluster(files, **fields):
    names = {"password_file": str(files / "password"), "ca_file": str(files / "ca.pem")}
    return KafkaClusterDefinition("main", bootstrap="k:1", security="sasl_ssl", user="u", **{**names, **fields})


@pytest.mark.parametrize(("file", "text"), [("password", "second\n"), ("ca.pem", "authority 2")])
def test_other_contents_of_a_file_make_the_connection_outdated_at_the_next_look(files, file, text):
    now_s = [0.0]
    followed = FollowedConnection(cluster(files), now_s=lambda: now_s[0])
    now_s[0] = FILES_LOOK_S
    assert not followed.is_outdated()
    (files / file).write_text(text)
    now_s[0] += FILES_LOOK_S / 2
    assert not followed.is_outdated(), "the files are read once per interval"
    now_s[0] += FILES_LOOK_S / 2
    assert followed.is_outdated()
    (files / file).write_text("")
    (files / "password").unlink()
    now_s[0] += FILES_LOOK_S
    assert not followed.is_outdated(), "files that cannot be used yet do not end a connection that works"


def test_only_files_below_the_rooms_are_read_wherever_links_lead(files, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "zookeeper.auth").write_text("penstock:secret")
    assert connection_of(cluster(files), [files]).password == "first"
    (files / "link").symlink_to(elsewhere / "zookeeper.auth")
    for name in (elsewhere / "zookeeper.auth", files / "link", files / ".." / elsewhere.name / "zookeeper.auth"):
        with pytest.raises(ClusterUnreachable, match=rf"password_file .*below {files} only: .*--kafka-files"):
            connection_of(cluster(files, password_file=str(name)), [files])
    with pytest.raises(ClusterUnreachable, match=r"ca_file .* only"):
        connection_of(cluster(files, ca_file=str(elsewhere / "zookeeper.auth")), [files])
    (elsewhere / "linked").symlink_to(files / "password")
    named = cluster(files, password_file=str(elsewhere / "linked"))
    assert connection_of(named, [files]).password == "first", "the place of the file counts, not that of its name"


@pytest.mark.parametrize("text", ["-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "x" * 5_000])
def test_a_file_that_is_no_password_is_refused(files, text):
    (files / "password").write_text(text)
    with pytest.raises(ClusterUnreachable, match="it is not a password: use a file with one line"):
        connection_of(cluster(files))


def test_a_file_that_cannot_be_read_is_told_by_its_setting(files):
    for name, found in (("none", "No such file"), ("loop", "cannot be read"), (".", "directory")):
        (files / "loop").unlink(missing_ok=True)
        (files / "loop").symlink_to(files / "loop")
        with pytest.raises(ClusterUnreachable, match=f"ca_file .*{found}"):
            connection_of(cluster(files, ca_file=str(files / name)))
