"""For all tests: a property's example may take as long as a busy machine makes it take. What must be fast is measured by benchmarks."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
