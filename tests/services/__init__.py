"""Real servers that tests start and end by themselves.

A service that is missing skips at a desk and fails where CI=true: CI must not pass by not looking.
"""

import os

import pytest


def require(condition: object, why: str) -> None:
    """Skip the running test, or fail it under CI=true, unless `condition` holds; `why` says what is missing."""
    if condition:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI needs this: {why}", pytrace=False)
    pytest.skip(why)
