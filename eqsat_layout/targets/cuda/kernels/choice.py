"""Which family makes the kernels of a PrimFunc.

In: an unscheduled PrimFunc and a machine. Out: a PrimFunc without blocks that launches them; refused with every
family's reason, for what the kernels that all GPUs share are left for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.kernels.exchange_kernel import exchange_kernel
from eqsat_layout.targets.cuda.kernels.product_kernel import kernel_of
from eqsat_layout.targets.cuda.kernels.product_model import plans_for
from eqsat_layout.targets.cuda.kernels.products import product_of
from eqsat_layout.targets.cuda.kernels.row_kernel import row_kernel
from eqsat_layout.targets.cuda.machine import CudaMachine


def chosen_kernel(func: Any, machine: CudaMachine, *, approx: bool, tensorfloat32: bool = False) -> Any:
    """``approx``: sums may be added up in another order, and products of floats be made of parts.

    ``tensorfloat32``: floats may be cut to so many bits before they are multiplied.
    """

    def product(func: Any) -> Any:
        found = product_of(func)
        return kernel_of(found, plans_for(found, machine, tensorfloat32=tensorfloat32)[0])

    families: list[Callable[[Any], Any]] = [product, row_kernel] if approx else []
    reasons: list[str] = []
    for family in (*families, exchange_kernel):
        try:
            return family(func)
        except Refused as reason:
            reasons.append(str(reason))
    raise Refused("; ".join(reasons))
