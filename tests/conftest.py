"""For all tests: a property's example may take as long as a busy machine makes it take. What must be fast is measured by benchmarks.

Under CI the examples are the same in each run, so that a change is judged by what it changed; at a desk they are new ones each time.
"""

import os
import shutil

import pytest
from hypothesis import settings

from common.limited_log import LimitedLog

settings.register_profile("unhurried", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("unhurried")

os.environ.setdefault("PENSTOCK_CONSOLE", "0")
"""Every start of `penstock up` would start a console, too; its own tests switch it on."""

FORMS = {"native", "twin", "pure", "reference"}
"""Parameters of tests that run on a native module and on its Python reference."""


def pytest_addoption(parser):
    parser.addoption("--without-forms", action="store_true", help="Leave out tests that name the form they run on.")


def pytest_collection_modifyitems(config, items):
    """A whole run on the references has nothing new for tests that every other run makes on both forms."""
    if config.getoption("--without-forms"):
        both = [each for each in items if hasattr(each, "callspec") and FORMS & set(each.callspec.id.split("-"))]
        items[:] = [each for each in items if each not in set(both)]
        config.hook.pytest_deselected(items=both)


@pytest.fixture(autouse=True)
def no_line_was_logged_before():
    """Lines that can repeat are limited per process, and a test looks for its own."""
    LimitedLog.kinds.clear()


@pytest.fixture(scope="module", autouse=True)
def module_that_passes_leaves_no_files(request, tmp_path_factory):
    """A running engine allocates half a GiB, and a whole run starts a hundred of them."""
    base, failed = tmp_path_factory.getbasetemp(), request.session.testsfailed
    before = set(base.iterdir())
    yield
    if request.session.testsfailed == failed:
        for each in set(base.iterdir()) - before:
            if each.is_symlink():
                each.unlink()
            else:
                shutil.rmtree(each, ignore_errors=True)
