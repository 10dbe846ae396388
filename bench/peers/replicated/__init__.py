"""Penstock and its peers with replicas, in one run on one machine: `python -m bench.peers.replicated`."""
