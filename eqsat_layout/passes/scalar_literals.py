"""Numbers that calls pass to kernels, as part of these.

In: a Relax module whose ``call_tir`` calls pass constants of one element. Out: the same, in which PrimFuncs have the
number in the place of the operand: an index that is known (that of ``take``) can be fused, tiled and put into vectors,
``x ** 3`` is two products, and ``x / 6`` one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import tvm
from tvm import relax, s_tir, tirx

from eqsat_layout.graph.public_names import without_public_name
from eqsat_layout.passes.merge_calls import tir_call
from eqsat_layout.tir.axis_groups import axis_groups, with_axis_groups
from eqsat_layout.tir.intrinsics import is_call
from eqsat_layout.tir.structural import changed_block, nodes_of, structural_map

NumberOf = Callable[[Any], Any]
"""The literal that an operand is, or ``None``."""

_TINIEST: Final = 2.0**-126
_MOST_COPIES: Final = 4
"""Kernels that are made of one, each with floats of its own: more take long to compile, and programs that differ in
their scales only would share none."""


def with_integers(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` itself where no call passes an integer. The input is not changed."""
    return _with_numbers(mod, _integer, None, math.inf)


def with_floats(mod: tvm.IRModule, largest_power: float) -> tvm.IRModule:
    """The same for float32, for a few numbers of a PrimFunc: of fused ones, others are never called.

    Exponents from 3 on stay operands unless products are made of them: of whole ones up to ``largest_power``.
    """
    return _with_numbers(mod, _float, _MOST_COPIES, largest_power)


def _with_numbers(
    mod: tvm.IRModule, number_of: NumberOf, most_copies: int | None, largest_power: float
) -> tvm.IRModule:
    builder = relax.BlockBuilder(mod)
    writer = _Writer(mod, builder, number_of, most_copies, largest_power)
    for name, function in mod.functions.items():
        if isinstance(function, relax.Function):
            builder.update_func(name, writer.visit_expr(function))
    return relax.transform.DeadCodeElimination()(builder.get()) if any(writer.known.values()) else mod


@relax.expr_functor.mutator
class _Writer(relax.PyExprMutator):  # type: ignore[misc]
    """Gives calls PrimFuncs that know the numbers: ``known`` by callee, place and value."""

    def __init__(
        self, mod: tvm.IRModule, builder: Any, number_of: NumberOf, most_copies: int | None, largest_power: float
    ) -> None:
        super().__init__(mod)
        self._largest_power = largest_power
        self._mod, self._builder, self._number_of, self._most_copies = mod, builder, number_of, most_copies
        self._copies: Counter[Any] = Counter()
        self.known: dict[Any, Any] = {}

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if (found := tir_call(call)) is None:
            return call
        callee, args = found
        values = {place: value for place, arg in enumerate(args) if (value := self._number_of(arg)) is not None}
        func = self._mod.functions.get(callee)
        if not isinstance(func, tirx.PrimFunc):
            return call
        values = {place: value for place, value in values.items() if not self._stays(func, place, value)}
        if not values:
            return call
        key = callee, tuple((place, str(value.ty.dtype), value.value) for place, value in values.items())
        if key not in self.known:
            is_one_too_many = self._copies[callee] == self._most_copies
            known = None if is_one_too_many else knowing_numbers(func, values)
            self._copies[callee] += known is not None
            self.known[key] = known and self._builder.add_func(known, callee.name_hint)
        if self.known[key] is None:
            return call
        rest = [arg for place, arg in enumerate(args) if place not in values]
        made = call.ty_args[0]
        types = list(made.fields) if isinstance(made, relax.TupleType) else made
        return relax.call_tir(self.known[key], relax.Tuple(rest), types)

    def _stays(self, func: Any, place: int, value: Any) -> bool:
        """Of an exponent that TVM sees it writes "Detected pow(x, y)" to standard error."""
        if not isinstance(value, tirx.FloatImm) or value.value < 3:
            return False
        is_product = value.value.is_integer() and value.value <= self._largest_power
        return not is_product and _is_exponent(func, place)


def _integer(arg: Any) -> Any:
    data = _scalar(arg)
    is_integer = data is not None and str(data.dtype).startswith(("int", "uint"))
    return tirx.IntImm(str(data.dtype), int(data.numpy())) if is_integer else None


def _float(arg: Any) -> Any:
    """A literal of a normal number; zeros, infinities and NaN stay operands, as folding them could change results."""
    data = _scalar(arg)
    if data is None or str(data.dtype) != "float32":
        return None
    number = float(data.numpy())
    return tirx.FloatImm("float32", number) if _TINIEST <= abs(number) < math.inf else None


def minus_infinity(arg: Any) -> Any:
    """The literal, for those who look for it: what masks leave out."""
    data = _scalar(arg)
    is_float = data is not None and str(data.dtype) in ("float16", "float32")
    return tirx.FloatImm(str(data.dtype), -math.inf) if is_float and float(data.numpy()) == -math.inf else None


def _scalar(arg: Any) -> Any:
    """The tensor without axes that a constant is."""
    is_tensor = isinstance(arg, tvm.ir.GenericConst) and isinstance(arg.ty, relax.TensorType)
    return arg.value if is_tensor and not arg.value.shape else None


def knowing_numbers(func: Any, values: Mapping[int, Any]) -> Any:
    """``func`` with these values in the place of parameters; ``None`` where it does more than read them."""
    known = {func.params[place]: value for place, value in values.items()}

    def on_load(load: Any) -> Any:
        value = known.get(load.source)
        return load if value is None else value

    def on_block(block: Any) -> Any:
        return changed_block(block, reads=[region for region in block.reads if region.source not in known])

    if any(_is_address_of(call, known) for call in nodes_of(func.body, tvm.ir.Call)):
        return None
    body = structural_map(func.body, (tvm.ir.TensorLoad, on_load), (s_tir.SBlock, on_block))
    if any(var in known for var in nodes_of(body, tvm.ir.Var)):
        return None
    params = [param for place, param in enumerate(func.params) if place not in values]
    rewritten = tirx.PrimFunc(params, body, ret_type=func.ret_type, attrs=func.attrs)
    groups = {place: own for place, param in enumerate(params) if (own := axis_groups(func).get(param))}
    return without_public_name(with_axis_groups(rewritten, groups))


def _is_exponent(func: Any, place: int) -> bool:
    powers = [call for call in nodes_of(func.body, tvm.ir.Call) if is_call(call, "tirx.pow")]
    reads = (load for power in powers for load in nodes_of(power.args[1], tvm.ir.TensorLoad))
    return any(load.source.same_as(func.params[place]) for load in reads)


def _is_address_of(call: Any, buffers: Mapping[Any, Any]) -> bool:
    """The call takes the address of an element of such a buffer."""
    is_address = str(getattr(call.op, "name", "")).endswith("address_of")
    return is_address and any(isinstance(arg, tvm.ir.TensorLoad) and arg.source in buffers for arg in call.args)
