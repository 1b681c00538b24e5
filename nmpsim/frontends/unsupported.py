"""What the lowerings of all formats raise."""


class UnsupportedError(Exception):
    """An operation, or this form of it, is not known. The text says what was found."""
