"""The generator exists only natively: without it there is nothing to test here but the message that says so."""

from pathlib import Path

import pytest

from bench import generator

NEEDS_NO_NATIVE = (
    "test_bench_command.py",
    "test_bench_servers.py",
    "test_peers_figures.py",
    "test_peers_page.py",
    "test_peers_processes.py",
    "test_peers_report.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if generator.native is not None:
        return
    for item in items:
        if item.path.parent == Path(__file__).parent and item.path.name not in NEEDS_NO_NATIVE:
            item.add_marker(pytest.mark.skip(reason="the native load generator is not built"))
