"""What holds for every test: the workers of pytest-xdist share the cores, so TVM gets one thread in each; what was
measured on this machine plays no part; and faults are raised, not worked around."""

from __future__ import annotations

import os
import tempfile

from hypothesis import settings

os.environ.setdefault("TVM_NUM_THREADS", "1")
os.environ["EQSAT_LAYOUT_CACHE"] = os.path.join(tempfile.gettempdir(), "eqsat_layout_tests_have_no_cache")

os.environ["EQSAT_LAYOUT_STRICT"] = "1"

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
