"""Rows of ``texture.py``: one network by one planner, ours, a policy's, another engine's or TVM's."""
