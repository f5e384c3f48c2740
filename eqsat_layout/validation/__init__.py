"""Validation of a plan: both modules run on the same random inputs, and which op is to blame where they differ.

Imports ``targets``, ``extract`` and what is below them.
"""
