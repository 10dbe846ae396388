"""The buffer in Redis. In order: address, client, layouts, guard, slots, undeleted, latest, counts, puts, store.
`survey` counts it for people.

Needs redis-py, an extra: `pip install penstock[redis]`.
"""
