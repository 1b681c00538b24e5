"""What a lowering raises."""


class UnsupportedError(Exception):
    """An operation, or this form of it, is not known. The text says what was found."""
