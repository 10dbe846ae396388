"""The buffer in Redis. In order: address, client, guard, slots, layouts, store; survey counts it for people.

Needs redis-py, an extra: `pip install penstock[redis]`.
"""
