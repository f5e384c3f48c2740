"""Whether LLVM makes code for a target at all: it ends the process where it does not.

In: a target whose ``mcpu`` LLVM knows. Out: nothing, or :class:`TargetError` with the reason. What can be told from
names and features is; architectures that nobody here ran are tried in another process.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import tvm
from tvm import te
from tvm.target import codegen
from tvm_ffi.serialization import to_json_graph_str

from eqsat_layout.errors import TargetError
from eqsat_layout.system.own_cpu import own_cpu
from eqsat_layout.system.workers import WorkerError, workers
from eqsat_layout.targets.cpu.amx.instructions import OF_BYTES, OF_FLOATS
from eqsat_layout.targets.cpu.host import features
from eqsat_layout.targets.cpu.objects import LOWERING_FAULTS, KernelJob, make_object

_X86: Final = "x86_64"
_OF_X86: Final = ("64bit", "64bit-mode", "sse2")
"""What its functions are called with: integers of 64 bits, floats in vector registers."""
_OTHER_NAMES: Final = {"amd64": _X86, "arm64": "aarch64"}
_TRIED: Final = (_X86, "aarch64")
"""Architectures for which LLVM makes code of whatever we write."""
_DTYPES: Final = ("float32", "float64", "int8")
"""What programs are made of. Halves in vectors of RISC-V end a process; programs without them are built."""


def check_triple(triple: str) -> None:
    """Before anything else is asked about it: TVM's answers end the process for one that LLVM has no code for."""
    if codegen.llvm_is_valid_cpu("generic", triple):
        return
    try:  # some have no CPU of that name
        workers().apart(_look_at, triple)
    except (WorkerError, *LOWERING_FAULTS) as error:
        raise TargetError(f"LLVM {codegen.llvm_version_major()} makes no code for mtriple {triple!r}") from error


def _look_at(triple: str) -> None:
    codegen.llvm_get_cpu_features(tvm.target.Target({"kind": "llvm", "mtriple": triple}))


def check_accepted(target: tvm.target.Target) -> None:
    """See above."""
    try:
        found = set(features(target))
    except LOWERING_FAULTS as error:
        raise TargetError(f"{_said(target)}: {_reason(error)}") from error
    _check_names(target)
    architecture = _architecture(target)
    missing = [name for name in _OF_X86 if name not in found]
    if architecture == _X86 and missing:
        raise TargetError(f"{_said(target)} lacks {missing[0]}, without which there is no code for {_X86}")
    if may_fail(target):
        _check_by_trial(to_json_graph_str(target), _said(target))


def may_fail(target: tvm.target.Target) -> bool:
    """LLVM may end the process that makes code for the target."""
    architecture = _architecture(target)
    takes_away = any(name.startswith("-") for name in _chosen(target))
    return architecture not in _TRIED or (architecture != _X86 and takes_away)


def _check_names(target: tvm.target.Target) -> None:
    """LLVM says on standard error that it does not know one, and goes on without it."""
    plain = {name: value for name, value in dict(target.attrs).items() if name in ("mtriple", "mcpu")}
    for attribute in _chosen(target):
        name = attribute[1:]
        if attribute[:1] not in ("+", "-") or not name:
            raise TargetError(f"mattr {attribute!r}: names of features stand behind a + or a -")
        if name not in features(tvm.target.Target({"kind": "llvm", **plain, "mattr": [f"+{name}"]})):
            raise TargetError(
                f"LLVM {codegen.llvm_version_major()} knows no feature {name!r} of {_architecture(target)}"
            )


def _chosen(target: tvm.target.Target) -> list[str]:
    """Features that somebody added or took away, and no property of this machine."""
    usual = {*own_cpu().hidden, *OF_FLOATS, *OF_BYTES} if _architecture(target) == _X86 else set()
    return [name for name in map(str, dict(target.attrs).get("mattr", ())) if name not in usual]


def _architecture(target: tvm.target.Target) -> str:
    name = str(dict(target.attrs).get("mtriple") or codegen.llvm_get_system_triple()).split("-")[0]
    return _OTHER_NAMES.get(name, name)


@cache
def _check_by_trial(target: str, said: str) -> None:
    """Some kernels, made by a process that may be lost."""
    for dtype in _DTYPES:
        try:
            workers().apart(make_object, KernelJob((("tried", _kernel(dtype)),), target, False))
        except WorkerError as error:
            raise TargetError(f"LLVM makes no code for {said}: {error}") from error
        except LOWERING_FAULTS as error:
            raise TargetError(f"{said}: {_reason(error)}") from error


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


def _said(target: tvm.target.Target) -> str:
    own = {
        name: value for name, value in dict(target.attrs).items() if name in ("mtriple", "mcpu", "mabi", "mfloat-abi")
    }
    parts = [f"{name} {str(value)!r}" for name, value in own.items()]
    return ", ".join([*parts, *(["mattr " + ",".join(_chosen(target))] if _chosen(target) else [])]) or "llvm"


def _reason(error: Any) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
