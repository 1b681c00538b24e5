"""What the lowerings of all formats raise."""


class UnsupportedError(Exception):
    """An operation, or this form of it, is not known. The text says what was found."""


class NotConstantError(UnsupportedError):
    """A tensor's values have to be known when the model is compiled, and are not."""

    def __init__(self, name: str, what: str = "an input") -> None:
        super().__init__(f"{name or what} is not a constant")
        self.name = name
