"""What keeps the demo from running at all, as one sentence; a failed check is a verdict and no error."""


class DemoError(Exception):
    pass
