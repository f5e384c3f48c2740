"""The host's part of a program.

In: a Relax module of kernels. Out: a plan as data: memories, and what is launched in which order.
"""
