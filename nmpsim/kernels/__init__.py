"""Arithmetic on arrays: compiled kernels use Numba, host operations NumPy."""
