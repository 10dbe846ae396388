"""One hung consumer of three delays its leased messages by the lease time; where consumers own queues, it stalls its
queues.

Short form of bench.hung_consumer, with its processes.
"""

from bench.hung_consumer import BATCH, both

LEASE_S = 1.5
NOISE_S = 1.0  # of a machine that does other things too; the engine itself is 20 ms late at most


def test_a_hung_consumer_delays_only_what_it_holds_and_by_no_more_than_its_lease():
    leases, owners = both(seconds=3.0, hang_s=0.8, lease_s=LEASE_S)
    assert leases.undone == 0
    assert leases.delays_s()[-1] < LEASE_S + NOISE_S
    # What it worked on, what its last pull brought, and nothing else.
    assert leases.late(LEASE_S / 2) <= 2 * BATCH
    assert leases.delays_s()[-1] > LEASE_S / 2, "the consumer held nothing when it was stopped"
    assert owners.undone > len(owners.sent_s) / 8
