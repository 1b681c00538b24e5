"""Scratchpad and DRAM: every bounds check.

The checks are pure functions of integers, so that both engines use the same ones.
"""
