"""Kernels of several stages: what is joined, and how it is tiled so that what lies between stays in a cache."""
