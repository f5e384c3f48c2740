"""A CPU as a target: what the user gives, checked.

In: a target as the user gives it. Out: a checked ``tvm.target.Target``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import tvm
from tvm.target import codegen

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.cpu.amx.instructions import ATTRIBUTES, is_permitted

Progress = Callable[[str], None]
"""Called with the name of each step of a build as it starts."""


def normalize_target(target: Any = None, *, approx: bool = True) -> tvm.target.Target:
    """The checked target: ``None`` or ``"llvm"`` is this machine; else a string, a dict or a ``Target``.

    An ``llvm`` target without ``mcpu`` gets the host's, and one without ``num-cores`` the threads that TVM will use.
    Without ``mcpu`` and ``mattr`` it also gets the host's matrix unit, if that may be used; ``approx=False``: it has
    none whatever is given, as products on it (:mod:`float_parts`) differ for infinite operands. Raises
    :class:`TargetError` that names the target for one that is unknown or can't be built for here.
    """
    parsed = _parse(target)
    kind = str(parsed.kind.name)
    if kind != "llvm":
        raise TargetError(f"can't build for target kind {kind!r} here: only 'llvm' is supported so far")
    if not tvm.get_global_func("target.build.llvm", allow_missing=True):
        raise TargetError("this TVM was built without LLVM")
    config = {k: v for k, v in dict(parsed.attrs).items() if k in _KEPT}
    config = {"kind": "llvm"} | config
    if _is_host(config) and "mcpu" not in config:
        config["mcpu"] = str(codegen.llvm_get_system_cpu())
        if "mattr" not in config and is_permitted():
            config["mattr"] = list(ATTRIBUTES)
    if not approx and "mattr" in config:
        config["mattr"] = [attribute for attribute in map(str, config["mattr"]) if attribute not in ATTRIBUTES]
    config.setdefault("num-cores", _host_threads())
    checked = tvm.target.Target(config)
    mcpu = config.get("mcpu")
    triple = config.get("mtriple") or str(codegen.llvm_get_system_triple())
    if mcpu and mcpu != "generic" and not codegen.llvm_is_valid_cpu(str(mcpu), str(triple)):
        raise TargetError(f"LLVM {codegen.llvm_version_major()} knows no mcpu {mcpu!r} for {triple!r}")
    return checked


def axis_groups(target: tvm.target.Target, scope: str) -> int:
    """The most groups of physical axes that a buffer may have in memory of ``scope``: 1 where memory is flat.

    ``target`` is one that :func:`normalize_target` gives. TVM 0.27 allocates flat buffers only, so CPUs have no others.
    """
    return _AXIS_GROUPS[str(target.kind.name)].get(scope, 1)


_AXIS_GROUPS: Mapping[str, Mapping[str, int]] = {"llvm": {}}
"""By kind and memory scope, where it is more than one."""

_CORES = len(os.sched_getaffinity(0))
"""Taken at import: TVM's first parallel loop narrows the affinity of the thread that runs it."""

_KEPT = ("mcpu", "mtriple", "mattr", "num-cores", "mfloat-abi", "mabi", "opt-level", "vector-width")


def _parse(target: Any) -> Any:
    if target is None:
        target = "llvm"
    if isinstance(target, tvm.target.Target):
        return target
    if not isinstance(target, str | Mapping):
        raise TargetError(f"a target is a string, a dict or a tvm.target.Target, not {type(target).__name__}")
    try:
        return tvm.target.Target(target if isinstance(target, str) else dict(target))
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        raise TargetError(f"unknown target {target!r}: {reason}") from error


def _is_host(config: Mapping[str, Any]) -> bool:
    """The target is this machine's kind of CPU (so that its ``mcpu`` may be filled in)."""
    triple = str(config.get("mtriple") or "")
    return not triple or triple.split("-")[0] == str(codegen.llvm_get_system_triple()).split("-")[0]


def _host_threads() -> int:
    asked = os.environ.get("TVM_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else _CORES
