"""Targets: one folder each, behind one protocol; what several of them share is in ``schedules/``."""
