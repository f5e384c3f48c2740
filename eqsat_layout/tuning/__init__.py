"""Which kernels to measure, on which device, and keeping what they take.

Imports ``planning`` and what is below it.
"""
