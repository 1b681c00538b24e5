"""Property-based tests with fresh seeds for a given time: ``python -m tests.campaign``."""
