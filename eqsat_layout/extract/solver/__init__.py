"""The selection problem as numbers, and its exact solution.

Imports ``errors`` only.
"""
