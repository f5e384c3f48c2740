"""What the host of an OpenCL device does, as data: allocations, launches, results. And an executor of it.

Imports the room's kernels.
"""
