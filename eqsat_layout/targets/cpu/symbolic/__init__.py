"""Kernels of sizes that only a run tells: parts of known sizes, and what is left of them."""
