import pytest

from common.secret_file import secret_fault, secret_faults


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "cluster.key"
    path.touch(0o600)
    path.write_bytes(b"k" * 32)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_file_that_only_its_user_and_group_may_read_is_a_secret(secret, mode):
    secret.chmod(mode)
    assert secret_fault(secret, 16, "--cluster-key") == ""


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o602])
def test_a_file_that_others_may_read_or_its_group_may_write_is_refused_with_the_remedy(secret, mode):
    secret.chmod(mode)
    fault = secret_fault(secret, 16, "--cluster-key")
    assert fault.startswith(f"--cluster-key {secret}: mode {mode:04o}") and fault.endswith(f"run chmod 600 {secret}")


def test_a_missing_file_a_directory_and_a_short_secret_are_named(secret, tmp_path):
    found = secret_faults({"--cluster-key": tmp_path / "none", "--tls-key": tmp_path, "--unset": None})
    assert found == [
        f"--cluster-key {tmp_path}/none: no such file or directory",
        f"--tls-key {tmp_path}: not a regular file",
    ]
    assert secret_fault(secret, 33, "--cluster-key") == f"--cluster-key {secret}: 32 bytes: use at least 33"
