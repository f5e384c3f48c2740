"""Bundles: all that is measured on a card, written where there is none, and what runs them there."""
