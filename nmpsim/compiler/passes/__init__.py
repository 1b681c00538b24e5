"""Functions from module to module."""
