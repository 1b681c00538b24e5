"""Compiled parts of the search: the order of instructions and their simulation."""
