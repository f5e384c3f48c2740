"""CUDA: kernels on tensor cores, built anywhere."""
