"""A running `penstock up` for the tests of faults."""

from tests.e2e.conftest import penstock_factory, penstock_up

__all__ = ["penstock_factory", "penstock_up"]
