"""The model of kernels on a CPU: register tiles, operand loads, chains of stages, and what they cost."""
