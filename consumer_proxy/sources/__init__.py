"""Stores of messages: one interface, one module per kind of store."""
