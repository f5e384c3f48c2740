"""Hypothesis: new examples on every run by hand, the same ones on every run of CI; no deadlines."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("by hand", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "by hand")
