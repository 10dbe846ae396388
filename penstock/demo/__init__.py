"""The demo of `penstock up --demo`: sends a file line by line through the whole path and proves that it arrived.

In order: source (the file), programs (the clients), access (topic, application, group), pair (the two processes),
check (the proof), view (the progress).
"""
