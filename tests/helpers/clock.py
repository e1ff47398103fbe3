"""A clock that tests move by hand."""


class Clock:
    """A monotonic clock that returns `now` until a test changes it."""

    def __init__(self):
        self.now = 5000.0

    def __call__(self):
        return self.now
