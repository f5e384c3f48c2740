"""The host of a CUDA device: programs as data, and what runs them."""
