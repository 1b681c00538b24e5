"""Analyses of programs and runs."""
