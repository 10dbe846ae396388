"""A listener's certificate: replaced without a restart, kept when its new files are wrong, and noted before its end."""

import logging
import shutil
import ssl
import subprocess

import pytest

from common.limited_log import LimitedLog
from common.net.certificate import CertificateWatch, ServerCertificate
from common.net.tls import server_context
from common.net.validity import DAY_S, NotACertificate, validity_of
from common.readiness import Note
from penstock.doctor import software
from tests.services import require


def make(folder, name, days=90):
    """Write NAME.pem and NAME.key of a new certificate."""
    require(shutil.which("openssl"), "the openssl command")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days),
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / f"{name}.key",
                    "-out", folder / f"{name}.pem"], check=True, capture_output=True)  # fmt: skip


class Files:
    """The files of a listener, which tests replace, and its certificate with a clock that they set."""

    def __init__(self, folder):
        self.folder, self.pem, self.key = folder, folder / "in-use.pem", folder / "in-use.key"
        make(folder, "first")
        self.put("first")
        self.now_s = validity_of(self.pem.read_text()).begins_s + 60.0
        self.certificate = ServerCertificate(str(self.pem), str(self.key), now_s=lambda: self.now_s)

    def put(self, name, parts=("pem", "key")):
        for part in parts:
            fresh = self.folder / "fresh"
            shutil.copy(self.folder / f"{name}.{part}", fresh)
            fresh.chmod(0o600)
            fresh.replace(self.folder / f"in-use.{part}")

    def checked(self):
        """Twice: changed files are loaded once they have stayed the same."""
        for _ in range(2):
            self.certificate.check()
        return self.certificate.health()

    def shown(self):
        """The certificate that a new connection gets: the stream of its client and server, in memory."""
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = self.certificate.wrap_bio(to_server, to_client, server_side=True)
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        client = trust.wrap_bio(to_client, to_server)
        for side in (client, server, client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
        return ssl.DER_cert_to_PEM_cert(client.getpeercert(binary_form=True)).strip()


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setattr(LimitedLog, "kinds", {})
    return Files(tmp_path)


def text(files, name):
    return (files.folder / f"{name}.pem").read_text().strip()


def test_replaced_files_are_shown_to_new_connections_once_they_stay_the_same(files, caplog):
    caplog.set_level(logging.INFO)
    make(files.folder, "second")
    assert files.shown() == text(files, "first")
    files.put("second")
    files.certificate.check()
    assert files.shown() == text(files, "first"), "the files may still be written"
    files.certificate.check()
    assert files.shown() == text(files, "second")
    assert "loaded again, for new connections" in caplog.text


def test_a_certificate_whose_key_has_not_been_replaced_yet_is_not_used(files, caplog):
    make(files.folder, "second")
    files.put("second", parts=("pem",))
    state = files.checked()
    assert isinstance(state, Note) and "the certificate loaded before is in use" in state
    assert files.shown() == text(files, "first")
    assert "the changed files cannot be used" in caplog.text
    files.put("second", parts=("key",))
    assert files.checked() is True
    assert files.shown() == text(files, "second")


@pytest.mark.parametrize(
    "content", ["", "no certificate", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", None]
)
def test_a_broken_or_missing_new_file_keeps_the_certificate(files, caplog, content):
    files.pem.unlink()
    if content is not None:
        files.pem.write_text(content)
    assert isinstance(files.checked(), Note)
    assert files.shown() == text(files, "first")
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    for _ in range(5):
        files.checked()
    assert len(caplog.records) == 1, "limited to one line per minute"


def test_a_new_key_that_others_may_read_is_refused(files):
    make(files.folder, "second")
    files.put("second")
    files.key.chmod(0o644)
    assert "lets other users read" in files.checked()
    assert files.shown() == text(files, "first")


def test_an_expired_certificate_takes_the_place_of_an_expired_one_only(files):
    make(files.folder, "second", days=1)
    files.now_s = validity_of((files.folder / "second.pem").read_text()).ends_s + 1.0
    files.put("second")
    state = files.checked()
    assert "expired at" in state and "the certificate loaded before is in use" in state
    assert files.shown() == text(files, "first")
    files.now_s = validity_of((files.folder / "first.pem").read_text()).ends_s + 1.0
    files.checked()
    assert files.shown() == text(files, "second")


def test_the_end_is_noted_two_weeks_before_and_once_per_day(files, caplog):
    files.now_s = files.certificate.validity.ends_s - 15 * DAY_S
    assert files.checked() is True
    files.now_s += 2 * DAY_S
    for _ in range(10):
        assert "in 13.0 days: replace" in files.checked()
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    files.now_s += 20 * DAY_S
    assert "expired at" in files.checked()
    assert files.certificate.left_s == pytest.approx(-7 * DAY_S)


def test_the_end_of_a_short_certificate_is_noted_in_its_last_fifth(files):
    make(files.folder, "short", days=1)
    files.put("short")
    assert files.checked() is True
    files.now_s = files.certificate.validity.ends_s - DAY_S / 6
    assert "expires at" in files.checked()


def test_the_first_certificate_of_a_chain_that_ends_is_its_end(files):
    make(files.folder, "long", days=3650)
    both = text(files, "long") + "\n" + text(files, "first")
    assert validity_of(both).ends_s == files.certificate.validity.ends_s


def test_a_validity_is_that_of_the_tls_library(files):
    context = server_context(str(files.pem), str(files.key))
    context.load_verify_locations(str(files.pem))
    (found,) = context.get_ca_certs()
    assert validity_of(files.pem.read_text()) == tuple(
        int(ssl.cert_time_to_seconds(found[name])) for name in ("notBefore", "notAfter")
    )


@pytest.mark.parametrize("cut", [10, 30, 60, 100])
def test_a_damaged_certificate_is_said_to_be_one(files, cut):
    der = ssl.PEM_cert_to_DER_cert(files.pem.read_text())
    with pytest.raises(NotACertificate):
        validity_of(ssl.DER_cert_to_PEM_cert(der[:cut]))


def test_a_process_without_tls_has_no_state_and_no_metric_of_it():
    class Options:
        tls_listen = None

    watch = CertificateWatch(Options())
    assert (watch.health(), list(watch.collect())) == ({}, [])


def test_the_doctor_tells_when_a_certificate_expires_and_which_is_none(tmp_path, monkeypatch):
    make(tmp_path, "fine")
    (tmp_path / "none.pem").write_text("text")
    found = [software.certificate(tmp_path / f"{name}.pem") for name in ("fine", "none", "missing")]
    assert [each.state for each in found] == ["ok", "missing", "missing"]
    assert "valid until" in found[0].words and "no certificate in PEM form" in found[1].words
    monkeypatch.setattr("time.time", lambda: validity_of((tmp_path / "fine.pem").read_text()).ends_s - DAY_S)
    assert software.certificate(tmp_path / "fine.pem").state == "note"
