"""Shared modules without dependencies on the processes: contract, wire, network, configuration, credentials,
operations.
"""
