"""The Penstock of a rehearsal, started by hand."""

import pytest

from penstock.rehearsal import site
from penstock.rehearsal.errors import RehearsalFailed


def test_its_bridge_may_read_the_files_of_the_cluster_wherever_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "PENSTOCK", ("echo",))
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "password").write_text("x")
    (tmp_path / "linked").symlink_to(tmp_path / "secret" / "password")
    made = site.RehearsalSite("files")
    made.make()
    try:
        with pytest.raises(RehearsalFailed, match=rf"--kafka-files {tmp_path}/secret$"):
            made.start([str(tmp_path / "linked"), ""])
    finally:
        made.remove()
