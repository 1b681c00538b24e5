"""Module to bundle: legalize, fuse, slice, allocate, emit.

``driver.compile_module`` goes through these in order; read it first.
"""
