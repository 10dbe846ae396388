"""Traces of messages, where an operator asks for them: docs/design/0044-traces.md."""
