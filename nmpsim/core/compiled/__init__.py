"""The compiled engine, which executes programs in code that Numba compiles."""
