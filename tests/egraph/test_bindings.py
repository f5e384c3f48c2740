"""Of egglog's wheel the engine is imported alone, and stays whole for others."""

from __future__ import annotations

import subprocess
import sys

ENGINE_FIRST = """
import sys
from eqsat_layout.egraph import bindings, engine
assert "egglog" not in sys.modules and "black" not in sys.modules
import egglog
assert egglog.bindings.EGraph is bindings.EGraph
assert str(egglog.EGraph().extract(egglog.i64(1) + 2)) == "i64(3)"
"""
EGGLOG_FIRST = """
import egglog
from eqsat_layout.egraph import bindings
assert egglog.bindings.EGraph is bindings.EGraph
"""


def test_planning_imports_the_engine_alone_and_egglog_can_be_imported_after_it() -> None:
    for code in (ENGINE_FIRST, EGGLOG_FIRST):
        subprocess.run([sys.executable, "-c", code], check=True)
