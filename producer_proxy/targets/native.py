"""Selects the lane of the hot path to Kafka, which is native code only, over the native hot path."""

from typing import Any

from common.twins import use_native
from engine.client.append import NATIVE as NATIVE_LANES

KafkaLane: Any = None
NATIVE = use_native("producer_proxy.targets", "_kafka_lane", requires=NATIVE_LANES)
if NATIVE:
    from producer_proxy.targets._kafka_lane import KafkaLane  # type: ignore[no-redef]

__all__ = ["NATIVE", "KafkaLane"]
