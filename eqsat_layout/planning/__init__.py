"""``optimize``, ``plan`` and ``compile``: options, search, what is chosen, emitting and building.

Imports every room below ``tuning``.
"""
