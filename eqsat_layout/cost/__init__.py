"""The cost model: what running an op and rewriting a layout take, which ops become one kernel, measured kernels.

Imports ``graph`` and what is below it.
"""
