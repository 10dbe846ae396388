"""Penstock as the console sees it: configuration, names, engines, stored messages, processes, a proxy for tests."""
