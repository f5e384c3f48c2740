"""Soundness: checks that what was optimised is what was meant, and that rules say what is true."""

from eqsat_layout.soundness.rules.testing import assert_rules_sound

__all__ = ["assert_rules_sound"]
