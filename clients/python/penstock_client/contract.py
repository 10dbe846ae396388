"""The contract's types, loaded once from the .thrift files that ship inside the package."""

from pathlib import Path

import thriftpy2

_IDL = Path(__file__).with_name("idl")

producer_thrift = thriftpy2.load(str(_IDL / "producer.thrift"), module_name="penstock_client_producer_thrift")
consumer_thrift = thriftpy2.load(str(_IDL / "consumer.thrift"), module_name="penstock_client_consumer_thrift")

Code = producer_thrift.message.Code
Credential = producer_thrift.message.Credential
Message = producer_thrift.message.Message
Durability = producer_thrift.Durability
SendRequest = producer_thrift.SendRequest
Ack = consumer_thrift.Ack
Delivery = consumer_thrift.Delivery
PullRequest = consumer_thrift.PullRequest
Verdict = consumer_thrift.Verdict
