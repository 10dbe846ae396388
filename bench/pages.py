"""Pages of the processes under test."""

import http.client

PAGE_TIMEOUT_S = 2.0


def metrics_page(host: str, port: int) -> str:
    """The text of /metrics; empty: the process does not answer."""
    connection = http.client.HTTPConnection(host, port, timeout=PAGE_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode(errors="replace")
    except (OSError, http.client.HTTPException):
        return ""
    finally:
        connection.close()
