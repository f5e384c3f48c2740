"""What a target is and can do (targets room).

In: a target as the user gives it. Out: a checked ``tvm.target.Target``, and the :class:`Machine` that schedules are
sized for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.target import codegen

from eqsat_layout.errors import TargetError
from eqsat_layout.targets.cpu.amx.instructions import ATTRIBUTES, is_permitted

Progress = Callable[[str], None]
"""Called with the name of each step of a build as it starts."""


@dataclass(frozen=True)
class Machine:
    """The figures of a CPU that schedules depend on.

    ``vector_bytes``: width of a vector register; ``registers``: their number; ``cores``: threads of a parallel loop;
    ``broadcast_operand``: an arithmetic instruction can broadcast a scalar from memory (no register of its own);
    ``l1_bytes``: data cache of a core, ``l2_bytes``: its second one;
    ``line_bytes``: what moves between caches at once; ``matrix_unit``: that of :mod:`matrix_unit` is there.
    """

    vector_bytes: int
    registers: int
    cores: int
    broadcast_operand: bool = False
    l1_bytes: int = 32768
    l2_bytes: int = 524288
    line_bytes: int = 64
    matrix_unit: bool = False

    def lanes(self, element_bytes: int) -> int:
        """Elements in a vector register."""
        return max(1, self.vector_bytes // max(1, element_bytes))


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


def machine_of(target: tvm.target.Target) -> Machine:
    """The figures of a target as :func:`normalize_target` gives it."""
    cores = int(dict(target.attrs).get("num-cores", 1))
    features = set(map(str, codegen.llvm_get_cpu_features(target)))
    if "avx512f" in features:
        attributes = set(map(str, dict(target.attrs).get("mattr", ())))
        has_unit = attributes.issuperset(ATTRIBUTES)  # a CPU of a kind that has it need not be allowed to use it
        return Machine(64, 32, cores, broadcast_operand=True, l2_bytes=1048576, matrix_unit=has_unit)
    if "avx" in features:
        return Machine(32, 16, cores)
    if "neon" in features or "sve" in features:
        return Machine(16, 32, cores, broadcast_operand=True)  # fmla takes one lane of a register
    return Machine(16, 16, cores)


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
