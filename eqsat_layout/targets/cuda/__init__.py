"""CUDA devices: kernels chosen with the layouts that feed them, built anywhere."""

from typing import Final

KINDS: Final = ("cuda",)
"""The kinds of targets that this folder makes."""
