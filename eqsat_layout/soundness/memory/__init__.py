"""Kernels for CPUs run between protected pages: whether they touch memory that is not theirs."""
