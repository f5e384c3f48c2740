"""Whether LLVM makes code for a target at all: it ends the process where it does not.

In: a target whose ``mcpu`` LLVM knows. Out: nothing, or :class:`TargetError` with the reason. What can be told from
names and features is; architectures that nobody here ran are tried in another process.
"""

from __future__ import annotations

from typing import Final

import tvm
from tvm.target import codegen
from tvm_ffi.serialization import to_json_graph_str

from eqsat_layout.errors import TargetError
from eqsat_layout.notes import last_of
from eqsat_layout.system.own_cpu import own_cpu
from eqsat_layout.targets.cpu.amx.instructions import OF_BYTES, OF_FLOATS
from eqsat_layout.targets.cpu.host import features

_X86: Final = "x86_64"
_OF_X86: Final = ("64bit", "64bit-mode", "sse2")
"""What its functions are called with: integers of 64 bits, floats in vector registers."""
_OTHER_NAMES: Final = {"amd64": _X86, "arm64": "aarch64"}
_TRIED: Final = (_X86, "aarch64")
"""Architectures for which LLVM makes code of whatever we write."""
_FAULTS: Final = (RuntimeError, ValueError, TypeError)
"""What TVM raises for a target."""


def check_triple(triple: str) -> None:
    """Before anything else is asked about it: TVM's answers end the process for one that LLVM has no code for."""
    if codegen.llvm_is_valid_cpu("generic", triple):
        return
    from eqsat_layout.targets.cpu.trials import has_code  # all that makes kernels: for rare targets alone

    if not has_code(triple):  # some that it makes code for have no CPU of that name
        raise TargetError(f"LLVM {codegen.llvm_version_major()} makes no code for mtriple {triple!r}")


def check_accepted(target: tvm.target.Target) -> None:
    """See above."""
    try:
        found = set(features(target))
    except _FAULTS as error:
        raise TargetError(f"{_said(target)}: {last_of(error)}") from error
    _check_names(target)
    architecture = _architecture(target)
    missing = [name for name in _OF_X86 if name not in found]
    if architecture == _X86 and missing:
        raise TargetError(f"{_said(target)} lacks {missing[0]}, without which there is no code for {_X86}")
    if may_fail(target):
        from eqsat_layout.targets.cpu.trials import check_by_trial  # as above

        check_by_trial(to_json_graph_str(target), _said(target))


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


def _said(target: tvm.target.Target) -> str:
    own = {
        name: value for name, value in dict(target.attrs).items() if name in ("mtriple", "mcpu", "mabi", "mfloat-abi")
    }
    parts = [f"{name} {str(value)!r}" for name, value in own.items()]
    return ", ".join([*parts, *(["mattr " + ",".join(_chosen(target))] if _chosen(target) else [])]) or "llvm"
