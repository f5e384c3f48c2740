"""Of egglog's wheel the engine is imported alone, and stays whole for others."""

from __future__ import annotations

import subprocess
import sys

import pytest

ENGINE_FIRST = """
import sys
from eqsat_layout.egraph import bindings, engine
engine_class = bindings.extension().EGraph
assert "egglog" not in sys.modules and "black" not in sys.modules
import egglog
assert egglog.bindings.EGraph is engine_class
assert str(egglog.EGraph().extract(egglog.i64(1) + 2)) == "i64(3)"
"""
EGGLOG_FIRST = """
import egglog
from eqsat_layout.egraph import bindings
assert egglog.bindings.EGraph is bindings.extension().EGraph
"""
LOGGING = """
import logging
logging.basicConfig(level=logging.INFO)
import eqsat_layout
from eqsat_layout.models import resnet50
eqsat_layout.plan(resnet50(image=32, width=8, blocks=(1, 1, 1, 1)))
"""
FORKED = """
import os
from eqsat_layout.egraph.engine import Engine
from eqsat_layout.errors import EqsatError
if BEFORE: Engine([])
child = os.fork()
if not child:
    try:
        engine = Engine([])
        del engine  # egglog frees it with its threads
        os._exit(7)
    except EqsatError as error:
        os._exit(8 if "fork before the first optimize" in str(error) else 9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (8 if BEFORE else 7)
"""


@pytest.mark.parametrize("before", [False, True])
def test_a_fork_plans_where_its_parent_has_not_and_says_so_where_it_has(before: bool) -> None:
    """Imports alone start no thread that a fork would wait for."""
    subprocess.run([sys.executable, "-c", FORKED.replace("BEFORE", str(before))], check=True, timeout=60)


def test_planning_imports_the_engine_alone_and_egglog_can_be_imported_after_it() -> None:
    for code in (ENGINE_FIRST, EGGLOG_FIRST):
        subprocess.run([sys.executable, "-c", code], check=True)


def test_egglog_keeps_its_commands_to_itself() -> None:
    """Who listens to all packages at INFO got thousands of lines for each model."""
    done = subprocess.run([sys.executable, "-c", LOGGING], check=True, capture_output=True, text=True, timeout=60)
    assert not done.stdout + done.stderr
