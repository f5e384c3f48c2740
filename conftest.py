"""What holds for every test: the workers of pytest-xdist share the cores, so TVM gets one thread in each."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("TVM_NUM_THREADS", "1")

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
