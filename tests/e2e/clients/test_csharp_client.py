"""Promises of the C# client that other clients do not make: its program of tests passes. See clients/csharp/tests."""

import subprocess

from tests.services import thrift_toolchains
from tests.services.fake_penstock import FakePenstock

CSHARP = thrift_toolchains.CLIENTS / "csharp"


def test_the_promises_of_the_csharp_client_hold(fake: FakePenstock):
    thrift_toolchains.build("csharp")
    thrift_toolchains.make("csharp-tests")
    dotnet = [CSHARP / "toolchain" / "dotnet", CSHARP / "build" / "toolchain", CSHARP / "build" / "tests.dll"]
    access = (fake.producer_endpoints, fake.consumer_endpoints, fake.app, fake.key_id, fake.secret)
    done = subprocess.run([*dotnet, *access], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    calls = [[message.id for message in call.messages] for proxy in fake.producers for call in proxy.calls]
    assert sorted(calls, key=len, reverse=True)[0] == [f"m{number}" for number in range(100)]
    assert len(calls) == 3
    assert len(fake.store.done) == 2
