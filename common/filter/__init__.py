"""Filters of subscriptions: the language, its compiled form, and its evaluation over a stored message.

See README.md.
"""
