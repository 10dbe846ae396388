"""Calls to the proxies: blocking, with retries, without gevent."""
