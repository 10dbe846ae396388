"""The verdict on a run: every acknowledged message is there, once in the log, in order per key, and no other is."""

from common.contract import Ack, Code
from tests.fault.history import check
from tests.fault.load import delivered
from tests.fault.stock_clients import Puller
from tests.waiting import until_done


def pull_all(penstock, shop, topic, group, wanted):
    """Pull and acknowledge until every id of `wanted` came, as long as more do; returns all deliveries in order."""
    found, acks, missing = [], [], set(wanted)
    with Puller(penstock.consumer, shop) as puller:

        def left():
            nonlocal acks
            response = puller.pull(group, topic, max_messages=1000, acks=acks, wait_ms=100)
            if response.code == Code.UNAVAILABLE:
                return len(missing) + len(acks)
            assert response.code == Code.OK, response.error
            assert {result.code for result in response.ack_results} <= {Code.OK}
            acks = [Ack(delivery.receipt) for delivery in response.deliveries]
            found.extend(map(delivered, response.deliveries))
            missing.difference_update(delivery.id for delivery in response.deliveries)
            return len(missing) + len(acks)

        until_done(left, f"all {len(wanted)} acknowledged messages are pulled")
    return found


def assert_nothing_lost_or_invented(penstock, shop, topic, sent, queues=4):
    """By the group's deliveries and by the log's own order; the two must also be of one mind."""
    acknowledged = [each.id for each in sent if each.outcome == "ok"]
    group = check(sent, pull_all(penstock, shop, topic, "everything", acknowledged), dense=False)
    assert group.broken() == {}, penstock.logs()
    with Puller(penstock.consumer, shop) as puller:
        log = check(sent, map(delivered, puller.read_all("everything", topic, queues)))
    assert log.broken() == {}, penstock.logs()
    assert log.copies == 0
    print(f"{log.acknowledged} acknowledged, {log.unknown} unknown, {group.duplicates} delivered again")
    return log
