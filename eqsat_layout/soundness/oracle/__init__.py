"""Interpreters of Relax and TIR in NumPy, which know of each element whether it is defined."""
