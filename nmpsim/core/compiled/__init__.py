"""The compiled engine: what users run. Numba from fetch to requantization."""
