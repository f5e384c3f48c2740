"""Kernels by access pattern.

In: PrimFuncs of blocks. Out: PrimFuncs whose statements launch work items.
"""
