"""Selects how producers reach librdkafka: by the library that lies in confluent-kafka's wheel, or by the package alone."""

import importlib.metadata
import logging
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from common.twins import use_native

log = logging.getLogger("penstock.kafka")
LibraryProducer: Any = None
"""None: the native modules or the library's file are missing, as in a package that was built against another one."""

if use_native("common.kafka.librdkafka", "_functions", "_library") and not TYPE_CHECKING:
    from common.kafka.librdkafka import _functions, _library

    for _file in importlib.metadata.files("confluent-kafka") or ():
        if _file.name.startswith("librdkafka"):
            try:
                _functions.load(str(_file.locate()))
            except OSError as fault:
                log.info("librdkafka is used through its package: %s", fault)
            else:
                _library.use_errors(KafkaError, KafkaException)
                LibraryProducer = _library.LibraryProducer
            break
