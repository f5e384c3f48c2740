"""What may end the process that does it, done by another one.

In: a target that nobody here made code for. Out: nothing, or :class:`TargetError`. Whatever makes kernels is imported
with it, so that only who tries a target does.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import tvm
from tvm import te
from tvm.target import codegen
from tvm_ffi.serialization import to_json_graph_str

from eqsat_layout.errors import TargetError
from eqsat_layout.notes import last_of
from eqsat_layout.system.workers import WorkerError, workers
from eqsat_layout.targets.cpu.objects import LOWERING_FAULTS, KernelJob, make_object

_DTYPES: Final = ("float32", "float64", "int8")
"""What programs are made of. Halves in vectors of RISC-V end a process; programs without them are built."""


def has_code(triple: str) -> bool:
    """LLVM makes code for what a triple says."""
    try:
        workers().apart(_look_at, triple)
    except (WorkerError, *LOWERING_FAULTS):
        return False
    return True


def _look_at(triple: str) -> None:
    codegen.llvm_get_cpu_features(tvm.target.Target({"kind": "llvm", "mtriple": triple}))


@cache
def check_by_trial(target: str, said: str) -> None:
    """Some kernels, made by a process that may be lost: :class:`TargetError` if it is, with what ``said`` calls the
    target."""
    for dtype in _DTYPES:
        try:
            workers().apart(make_object, KernelJob((("tried", _kernel(dtype)),), target, False))
        except WorkerError as error:
            raise TargetError(f"LLVM makes no code for {said}: {error}") from error
        except LOWERING_FAULTS as error:
            raise TargetError(f"{said}: {last_of(error)}") from error


def _kernel(dtype: str) -> str:
    """A product of matrices, as JSON."""
    a, b = te.placeholder((16, 33), dtype, "a"), te.placeholder((33, 7), dtype, "b")
    k = te.reduce_axis((0, 33), "k")
    product = te.compute((16, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "product")
    three = tvm.tirx.const(3, dtype)

    def quotient(i: Any, j: Any) -> Any:
        return product[i, j] + three if dtype == "int8" else product[i, j] / (product[i, j] + three)

    result = te.compute((16, 7), quotient, "result")
    made: str = to_json_graph_str(te.create_prim_func([a, b, result]).with_attr("global_symbol", "tried"))
    return made
