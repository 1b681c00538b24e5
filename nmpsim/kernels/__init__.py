"""Arithmetic: arrays in, arrays out. The compiled kernels use Numba; host operations NumPy."""
