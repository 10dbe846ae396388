import pytest

from engine.link import operations
from engine.link.proof import ADMIN_ROLE, CONTROLLER_ROLE, KAFKA_BRIDGE_ROLE, REPLICA_ROLE
from engine.ops.roles import ADMIN, CLUSTER, CONTROLLER, REPLICA, ROLES, right_to, role_of

OF_THE_LOG = {operations.FOLLOW, operations.STORED, operations.FETCH}
OF_MASTERS = {operations.RECORD, operations.REPORT, operations.HAND_OVER}


@pytest.mark.parametrize("name", ["producer_proxy", "consumer_proxy", KAFKA_BRIDGE_ROLE, "anything"])
def test_a_proxy_proves_the_cluster_key_and_can_neither_follow_the_log_nor_change_masters_nor_administer(name):
    role = role_of(name)
    assert role.key == CLUSTER
    assert not role.operations & (OF_THE_LOG | OF_MASTERS | {operations.ADMIN})
    assert {operations.APPEND, operations.PULL, operations.READ, operations.LISTEN} <= role.operations


def test_replicas_and_controllers_have_keys_of_their_own_and_nothing_but_their_operations():
    assert role_of(REPLICA_ROLE) == (REPLICA, OF_THE_LOG)
    assert role_of(CONTROLLER_ROLE) == (CONTROLLER, OF_MASTERS)
    assert role_of(ADMIN_ROLE).key == ADMIN and not role_of(ADMIN_ROLE).operations & (OF_THE_LOG | OF_MASTERS)


def test_a_refusal_says_which_link_may():
    assert right_to(operations.FETCH) == "FETCH: needs a link of the role replica"
    assert right_to(operations.ADMIN) == "ADMIN: needs a link of the role admin"
    assert right_to(operations.APPEND) == "APPEND: needs a link of a proxy"
    assert right_to(250) == ""


def test_every_operation_of_a_link_belongs_to_a_role():
    told = {operations.HELLO, operations.AUTH}  # before there is a role
    unasked = {operations.SEGMENT, operations.BYTES, operations.SYNC, operations.FORWARD}  # an engine sends them
    bridges = {operations.PRODUCE, operations.FIND}  # only a Kafka bridge serves them
    numbers = {number for name, number in vars(operations).items() if name.isupper()}
    assert numbers - told - unasked - bridges == set().union(*(each.operations for each in ROLES.values()))
