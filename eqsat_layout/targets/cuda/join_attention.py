"""Calls joined to attention: the product that makes scores, their softmax, and the product with the values.

In: a module of kernels that are not scheduled. Out: the same, in which such calls are one PrimFunc where its kernel is
faster by the models than theirs. It is found by what PrimFuncs compute: a line of calls, read by each other only,
from one product to another, of which :func:`~eqsat_layout.targets.cuda.kernels.attention.attention_of` makes one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tvm
from tvm import relax, s_tir, tirx

from eqsat_layout.passes.call_windows import (
    KernelCall,
    calls_of,
    is_closed,
    one_function,
    window_arguments,
    window_key,
    with_calls,
)
from eqsat_layout.passes.scalar_literals import knowing_numbers, minus_infinity
from eqsat_layout.targets.cuda.kernels.attention import REDUCTIONS, Attention, attention_of
from eqsat_layout.targets.cuda.kernels.attention_plan import tiles_of
from eqsat_layout.targets.cuda.kernels.extents import assumed
from eqsat_layout.targets.cuda.kernels.product_model import model_of
from eqsat_layout.targets.cuda.kernels.products import Product, product_of
from eqsat_layout.targets.cuda.machine import CudaMachine
from eqsat_layout.targets.schedules.attempts import unless_refused
from eqsat_layout.tir.structural import nodes_of

_LONGEST: Final = 5
"""Calls in a line."""


def join_attention(mod: tvm.IRModule, machine: CudaMachine) -> tvm.IRModule:
    """``mod`` itself where there is none."""
    builder = relax.BlockBuilder(mod)
    joiner = _Joiner(mod, machine, builder)
    return with_calls(mod, builder, joiner.joined)


@dataclass
class _Joiner:
    mod: tvm.IRModule
    machine: CudaMachine
    builder: Any
    _made: dict[Any, Any] = field(default_factory=dict)
    _products: dict[Any, Product | None] = field(default_factory=dict)

    def joined(self, function: Any) -> dict[Any, Any]:
        """For each variable the call that defines it from now on; ``None``: it is not needed any more."""
        found: dict[Any, Any] = {}
        calls, readers = calls_of(function)
        makers = {call.var: call for call in calls}
        for end in calls:
            lines = self._lines([end], makers, readers) if self._product(end) is not None else ()
            for window in lines:
                callee = self._callee(window)
                if callee is not None:
                    given = [arg for arg in window_arguments(window) if minus_infinity(arg) is None]
                    found |= {call.var: None for call in window[:-1]}
                    found[end.var] = relax.call_tir(callee, relax.Tuple(given), end.ty)
                    break
        return found

    def _lines(
        self, window: list[KernelCall], makers: Mapping[Any, KernelCall], readers: Mapping[Any, list[Any]]
    ) -> Iterator[list[KernelCall]]:
        """Those that end with a window, begin with a product and reduce as often as attention does."""
        for arg in window[0].args:
            longer = [makers[arg], *window] if arg in makers else window
            if longer is window or not is_closed(longer, readers):
                continue
            if self._product(longer[0]) is None:
                yield from self._lines(longer, makers, readers) if len(longer) < _LONGEST else ()
            elif sum(map(self._count_reductions, longer)) >= REDUCTIONS:
                yield longer

    def _product(self, call: KernelCall) -> Product | None:
        if call.callee not in self._products:
            self._products[call.callee] = unless_refused(lambda: product_of(self.mod[call.callee]))
        return self._products[call.callee]

    def _count_reductions(self, call: KernelCall) -> int:
        blocks = nodes_of(self.mod[call.callee].body, s_tir.SBlock)
        return sum(block.init is not None for block in blocks)

    def _callee(self, window: Sequence[KernelCall]) -> Any:
        """The variable of one PrimFunc that does what the calls of a window do; ``None`` where there is none."""
        numbers = {
            n: value for n, arg in enumerate(window_arguments(window)) if (value := minus_infinity(arg)) is not None
        }
        key = window_key(window), tuple(numbers)
        if key not in self._made:
            function = one_function(self.mod, window)
            if function is not None and numbers:
                function = knowing_numbers(function, numbers)
            is_faster = isinstance(function, tirx.PrimFunc) and self._is_faster(function, window)
            name = "_".join(dict.fromkeys(str(call.callee.name_hint) for call in window))
            self._made[key] = self.builder.add_func(function, name) if is_faster else None
        return self._made[key]

    def _is_faster(self, function: Any, window: Sequence[KernelCall]) -> bool:
        attention = unless_refused(lambda: attention_of(function))
        tiles = attention and unless_refused(lambda: tiles_of(attention, self.machine))
        if not attention or not tiles:
            return False
        return tiles[0].seconds(self.machine) < sum(self._alone(attention, call) for call in window)

    def _alone(self, attention: Attention, call: KernelCall) -> float:
        """Seconds of a call by itself; what is no product moves the scores at least."""
        product = self._product(call)
        if product is not None:
            return model_of(product, self.machine).fastest()[1]
        values = attention.values
        scores = math.prod(assumed(group.extent) for group in (values.batch, values.rows, values.steps))
        moved = 2.0 * scores * int(tvm.DataType(attention.dtype).bits) / 8
        return self.machine.launch_seconds + moved / self.machine.bandwidth
