"""Passes over quantised networks: bytes that stand for floats are multiplied, or at least kept, as bytes.

Imports ``graph`` and what is below it.
"""
