"""Run every test, slow ones included: ``python -m tests.full``."""
