"""The figures of a CPU that schedules and costs depend on.

In: a checked ``tvm.target.Target``. Out: a :class:`Machine`.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm.target import codegen

from eqsat_layout.targets.cpu.amx.instructions import ATTRIBUTES


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
