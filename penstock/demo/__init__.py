"""The demo of `penstock up --demo`: a real file, line by line, through the whole path, and the proof that it arrived.

In order: source (the file), programs (who sends and pulls), access (topic, application, group), pair (the two processes),
check (the proof), view (what is shown meanwhile).
"""
