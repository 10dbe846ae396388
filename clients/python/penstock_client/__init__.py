"""A thin client of Penstock: `Producer.send`, `Consumer.pull`. See the README beside this package."""

from penstock_client.batching import Batching, BatchingProducer
from penstock_client.codes import Action, action_of, name_of
from penstock_client.consumer import Consumer
from penstock_client.contract import Code, Delivery, Durability, Message, Verdict
from penstock_client.errors import ClosedError, ContractError, FullError, PenstockError, PullError, SendError
from penstock_client.metrics import Metrics
from penstock_client.options import Options
from penstock_client.producer import Producer
from penstock_client.results import Result

__all__ = [
    "Action",
    "Batching",
    "BatchingProducer",
    "ClosedError",
    "Code",
    "Consumer",
    "ContractError",
    "Delivery",
    "Durability",
    "FullError",
    "Message",
    "Metrics",
    "Options",
    "PenstockError",
    "Producer",
    "PullError",
    "Result",
    "SendError",
    "Verdict",
    "action_of",
    "name_of",
]
