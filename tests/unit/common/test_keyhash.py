import pytest

from common import keyhash
from common.wire import kafka_hash

# From Kafka's UtilsTest.testMurmur2, as Java shows them: signed.
KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("murmur2", [keyhash.murmur2, kafka_hash.murmur2], ids=["in use", "pure"])
@pytest.mark.parametrize("key", KAFKA)
def test_the_hash_is_kafkas(murmur2, key):
    assert murmur2(key) == KAFKA[key] & 0xFFFFFFFF


@pytest.mark.parametrize("key", KAFKA)
@pytest.mark.parametrize("queues", [1, 3, 16, 65_535])
def test_a_key_keeps_its_kafka_partition(key, queues):
    assert keyhash.queue_of(key, queues) == (KAFKA[key] & 0x7FFFFFFF) % queues


def test_an_empty_key_has_a_queue():
    assert keyhash.queue_of(b"", 8) == (kafka_hash.murmur2(b"") & 0x7FFFFFFF) % 8
