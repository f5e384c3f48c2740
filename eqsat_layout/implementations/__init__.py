"""Layouts and algorithms that an op may have; which of them a target offers, the target says.

Imports ``graph`` and what is below it.
"""
