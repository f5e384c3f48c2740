"""From a saturated e-graph to the chosen steps; ``solver/`` knows nothing of tensors.

Imports ``egraph``, ``cost`` and what is below them.
"""
