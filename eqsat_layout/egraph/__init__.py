"""The e-graph: rule text, insertion of graphs, questions and answers, saturation.

Imports ``implementations`` and what is below it; no costs, no targets.
"""
