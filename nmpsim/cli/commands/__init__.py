"""Commands, one module each; ``command`` is the click command."""
