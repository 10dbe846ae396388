"""Streaming queries that run to their end."""

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

STARTS_MAX = 20
NOT_IN_TIME = "worker failed to connect back"
"""Spark gives a Python process 10 s for its start, and has no setting for it: too little on a busy machine."""


def run_to_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query and wait for its end; it is started again, over its checkpoint, when a process was not ready in time."""
    for _ in range(STARTS_MAX - 1):
        query = start()
        try:
            query.awaitTermination()
            return query
        except StreamingQueryException as error:
            if NOT_IN_TIME not in str(error):
                raise
    query = start()
    query.awaitTermination()
    return query
