"""The buffer in Redis. In order: address, client, guard, layouts, slots, store. Needs redis-py, an extra: `pip install penstock[redis]`."""
