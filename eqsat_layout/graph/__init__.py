"""Relax to graphs of ops with signatures, and chosen steps to Relax again.

Imports ``tir`` and what is below it.
"""
