"""Addresses of broker groups: of one broker, or of several."""

import pytest

from common.config.broker_group import BrokerGroupDefinition
from common.config.errors import InvalidDefinition


def test_a_group_has_one_address_or_one_per_broker():
    one = BrokerGroupDefinition.from_value("g", {"address": "10.0.0.1:9702"})
    assert one.place == one.host_and_port == ("10.0.0.1", 9702)
    two = BrokerGroupDefinition.from_value("g", {"address": "10.0.0.1:9702,[::1]:9703"})
    assert two.place == two.addresses == (("10.0.0.1", 9702), ("::1", 9703))
    assert two.to_value() == {"address": "10.0.0.1:9702,[::1]:9703"}


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("10.0.0.1:9702,", "is not an address"),
        ("10.0.0.1:9702, 10.0.0.2:9702", "is not an address"),
        ("10.0.0.1:9702,10.0.0.1:9702", "use each broker once"),
        (",".join(f"10.0.0.{number}:1" for number in range(8)), "at most 7 brokers"),
    ],
)
def test_a_list_that_is_no_list_of_brokers_is_refused(address, fault):
    with pytest.raises(InvalidDefinition, match=fault):
        BrokerGroupDefinition.from_value("g", {"address": address})
