"""OpenCL devices: tensors as buffers and as images, chosen together with their layouts."""

from typing import Final

KINDS: Final = ("opencl",)
"""The kinds of targets that this folder makes."""
