"""Kernels for OpenCL devices: which work item computes what, and the passes from that to OpenCL C.

Imports the room's accesses and profiles, and ``targets/schedules``.
"""
