"""Passes over Relax modules that the build of every target needs: preparing, folding constants, fusing, merging calls.

Imports ``graph`` and what is below it.
"""
