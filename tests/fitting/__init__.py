"""Fits of hidden devices with fresh seeds: ``python -m tests.fitting``."""
