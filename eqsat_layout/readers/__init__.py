"""Modules from files and to files, and what guards against files that would run code.

Imports ``errors`` only.
"""
