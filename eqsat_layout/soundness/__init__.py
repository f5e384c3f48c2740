"""Soundness: checks that what was optimised is what was meant."""
