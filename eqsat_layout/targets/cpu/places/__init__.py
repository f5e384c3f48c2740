"""Where elements lie: planes, boxes and rows that kernels read in other shapes than they were written in."""
