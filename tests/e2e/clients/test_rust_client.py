"""The unit tests of the Rust client."""

import subprocess

from tests.services import thrift_toolchains


def test_the_unit_tests_of_the_rust_client_pass():
    thrift_toolchains.build("rust")
    done = subprocess.run(
        ["cargo", "test", "--quiet", "--locked", "--lib", "--target-dir", "build"],
        cwd=thrift_toolchains.CLIENTS / "rust",
        env=thrift_toolchains.environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
