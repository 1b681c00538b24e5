"""Passes that transform a module."""
