"""From a model to answers: a session compiles what it is given, or opens a library, and runs it.

Imports ``sources`` and ``planning``, and what is below them.
"""
