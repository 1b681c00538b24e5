"""Run the tests that a change can affect most: ``python -m tests.touched``."""
