"""Errors that keep the demo from running, as one sentence each. A failed check is a verdict, not an error."""


class DemoError(Exception):
    pass
