"""One module in one way, in a process that stock TVM may end.

In: the process, a module, a way. Out: what became of it. What ends stock TVM's process (0 / 0 of whole numbers, an
index from nowhere) says nothing of the program: it gets other inputs.
"""

from __future__ import annotations

from bench.soundness.tvm_suite.bounded import Bounded, LateError
from bench.soundness.tvm_suite.harvest import Module
from bench.soundness.tvm_suite.inputs import KINDS
from bench.soundness.tvm_suite.record import Outcome
from bench.soundness.tvm_suite.trial import STOCK_DIED, tried
from eqsat_layout.system.workers import WorkerError


def outcome_of(process: Bounded, module: Module, way: str, lost: int, number: int) -> tuple[Outcome, bool]:
    """What became of it, and whether it took too long; the others: what :func:`tried` takes beside the module."""
    is_late = False
    try:
        kind, text = process.call(tried, (str(module.path), way, lost, number))
    except WorkerError as error:
        is_late = isinstance(error, LateError)
        kind, text = "hang" if is_late else "crash", str(error)
        if way == "stock":
            if not is_late and lost + 1 < len(KINDS):
                return outcome_of(process, module, way, lost + 1, number)
            kind, text, lost = "not run", f"{STOCK_DIED} ({kind})", len(KINDS)
    return Outcome(module.path.stem, module.name, way, kind, text, lost), is_late
