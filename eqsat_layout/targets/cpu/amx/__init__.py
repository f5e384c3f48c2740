"""Products of matrices on AMX, the matrix unit of x86: plans, operands in tiles, results."""
