"""A plan and its reasons as text, data and HTML.

Imports ``cost``, ``graph`` and what is below them; it is given plain data and plans nothing itself.
"""
