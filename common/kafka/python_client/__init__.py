"""Driver over kafka-python 3.0: pure Python, one thread of its own per producer."""
