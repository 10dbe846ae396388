"""The page of figures by topic on the operator's port of a producer proxy, as its users know it."""

TOPIC_FIGURES_PATH = "/topic-figures"
BUCKETS = 16
FIRST_BOUND_S = 62.5e-6
"""Upper bound of the first bucket of times; each further one is twice the one before, and the last has none."""
