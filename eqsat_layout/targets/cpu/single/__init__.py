"""Schedules of kernels of one stage and its epilogue: tiles, lanes, rows, prefetch."""
