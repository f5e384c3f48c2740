"""Kernels of CUDA as TIR, one family a folder or file."""
