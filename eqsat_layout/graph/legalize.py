"""Relax ops to unscheduled PrimFuncs, convolutions in packed layouts included.

In: a Relax module. Out: a new module whose ops are calls of TE-style PrimFuncs (a block per stage, plain axes).
What can't be legalised stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import tvm
from tvm import relax, te, tirx, topi

from eqsat_layout.errors import EqsatError
from eqsat_layout.graph import images, quiet, wide_norms
from eqsat_layout.graph.op_names import ops_in
from eqsat_layout.graph.packed_convolution import PackedConvolution
from eqsat_layout.graph.te_kernels import TeKernel
from eqsat_layout.tir.counts_in_halves import with_wide_counts
from eqsat_layout.tir.empty_reductions import with_empty_reductions
from eqsat_layout.tir.intrinsics import short_name
from eqsat_layout.tir.known_sorts import with_known_sorts
from eqsat_layout.tir.signature import analyse
from eqsat_layout.tir.structural import with_primfuncs

_CONVOLUTIONS: Final = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")
_TRANSFORM: Final = "relax.layout_transform"

_COUNTED: Final = "relax.arange"
_MOST_COUNTED: Final = 1 << 16
"""Elements of a range that TVM's legalisation may write down, and keep, before anyone asks for them."""

_FULL: Final = ("relax.full", "relax.full_like")

_SCATTERS: Final = ("relax.scatter_elements", "relax.scatter_nd")
_MEANS: Final = ("relax.mean", "relax.std", "relax.variance")

_SINGLE: Final = "float32"

_MULTIPLY_ADD: Final = "relax.ewise_fma"
"""TVM has no legalisation of it, though its own tests of Adreno start from it."""

Legalizer = Callable[[Any, Any], Any]

REFUSALS: Final = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What TVM's own legalisations raise for calls that they can't do, over all ops with many shapes and types."""


MOST_OPERANDS: Final = 2048
"""Of an op: TVM writes its element as choices in each other, and ends the process where its stack does."""


def legalize(mod: tvm.IRModule) -> tvm.IRModule:
    """``mod`` with its Relax ops as ``call_tir``; ops without a legalisation stay. Never raises for an op."""
    made = relax.transform.LegalizeOps({name: _legalizer_of(name) for name in ops_in(mod)})(mod)
    return with_primfuncs(made, lambda _, func: _mended(func))


def _mended(func: Any) -> Any:
    """A kernel of TVM's, right where that is not."""
    return with_known_sorts(with_wide_counts(with_empty_reductions(func)))


def kernel_of(call: Any) -> TeKernel | None:
    """The one kernel that a call of a Relax op is, where all sizes are known: many times as quick as :func:`legalize`.
    None where it is not one kernel, or where it can't be legalised."""
    try:
        made = _legalizer_of(str(call.op.name))(_KernelsOnly(), call)
    except REFUSALS:  # of what a builder is asked for besides
        return None
    return made if isinstance(made, TeKernel) else None


def func_of(kernel: TeKernel) -> Any:
    """Its PrimFunc. It may be refused (:data:`REFUSALS`) where its computation is not known."""
    return _mended(kernel.func())


def func_as_read(kernel: TeKernel) -> Any:
    """The same for one whose computation is known. It is read again: what was planned is what is built."""
    func = func_of(kernel)
    if analyse(func) != kernel.computation:
        raise EqsatError(f"kernel {kernel.tensors[-1].op.name} is not what was read of its tensor expression: a fault")
    return func


def describes_kernel(legalizer: Legalizer, call: Any) -> bool:
    """Whether ``legalizer`` describes the one kernel that ``call`` is, in a tenth of the time that it takes to make it.
    What it does not describe may be legalised all the same."""
    try:
        return isinstance(legalizer(_KernelsOnly(), call), TeKernel)
    except REFUSALS:  # of what a builder is asked for besides
        return False


class _KernelsOnly:
    """What a legaliser is given in place of a ``BlockBuilder``, which registers kernels and emits calls of them. Where
    it gives it to TVM, as that of matmul does to infer a type, it is refused."""

    def call_te(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> TeKernel:
        """The kernel itself."""
        kwargs.pop("primfunc_name_hint", None)
        return TeKernel.of(func, args, kwargs)

    def normalize(self, made: TeKernel) -> TeKernel:
        """It has a type already."""
        return made


def _legalizer_of(name: str) -> Legalizer:
    ordinary = tvm.ir.Op.get(name).get_attr("FLegalize")  # has_attr says yes for every op
    if ordinary is None:
        return _multiply_add if name == _MULTIPLY_ADD else _of_nothing
    forgiving = _forgiving(quiet.LEGALIZERS.get(name, ordinary))
    return _OURS[name](forgiving) if name in _OURS else forgiving


def _forgiving(legalizer: Legalizer) -> Legalizer:
    """A legalizer of TVM's, but a call that it can't do stays a call.

    So does one whose result is none: TVM's median over several axes is a tensor by its type, and a pair as legalised.
    """
    return partial(_attempted, legalizer)


def _attempted(legalizer: Legalizer, builder: Any, call: Any) -> Any:
    if operands(call) > MOST_OPERANDS:
        return call
    if _holds_nothing(call.ty):
        return _nothing(builder, call)
    try:
        made = builder.normalize(legalizer(builder, call))
    except REFUSALS:
        if any(map(is_zero_constant, call.args)):
            return _attempted(legalizer, builder, _with_zeros_as_operands(builder, call))
        wide = _in_single_precision(builder, call)
        if wide is None:
            return call
        made = _attempted(legalizer, builder, wide)
        return call if made.same_as(wide) else _of_own_type(builder, made, call)
    is_tuple = [isinstance(one.ty, relax.TupleType) for one in (made, call)]
    return _of_own_type(builder, made, call) if is_tuple[0] == is_tuple[1] else call


def _holds_nothing(ty: Any) -> bool:
    """A tensor one of whose extents is 0, by which TVM divides in some kernels."""
    shape = ty.shape if isinstance(ty, relax.TensorType) else None
    return isinstance(shape, relax.ShapeExpr) and any(isinstance(x, tirx.IntImm) and not int(x) for x in shape.values)


def _of_nothing(builder: Any, call: Any) -> Any:
    """Ops that TVM's build makes kernels of only later, as scans: these stay, but where there is nothing to compute."""
    are_tensors = all(isinstance(one.ty, relax.TensorType) for one in call.args)
    return _nothing(builder, call) if are_tensors and _holds_nothing(call.ty) else call


def _nothing(builder: Any, call: Any) -> Any:
    zero = tirx.const(0, str(call.ty.dtype))
    return builder.call_te(
        lambda: te.compute(call.ty.shape.values, lambda *_: zero, "nothing"), primfunc_name_hint=short_name(call)
    )


def _of_own_type(builder: Any, made: Any, call: Any) -> Any:
    """As the op says: TVM's samples of float16 are float32."""
    if not all(isinstance(one.ty, relax.TensorType) for one in (made, call)) or call.ty.dtype in (None, made.ty.dtype):
        return made
    return relax.op.astype(builder.emit(made), str(call.ty.dtype))


def _full_legalizer(legalizer: Legalizer) -> Legalizer:
    """Of infinities and NaN too, of which TVM's own fails."""

    def attempt(builder: Any, call: Any) -> Any:
        shape, value = call.ty.shape, call.args[1]
        is_plain = isinstance(value, tvm.ir.GenericConst) and isinstance(shape, relax.ShapeExpr)
        number = value.value.numpy() if is_plain else np.zeros(())
        if number.dtype.kind != "f" or np.isfinite(number).all():
            return legalizer(builder, call)
        filled = tirx.const(float(number), str(call.ty.dtype))
        return builder.call_te(
            lambda: te.compute(shape.values, lambda *_: filled, "full"), primfunc_name_hint=call.op.name.split(".")[-1]
        )

    return attempt


def _scatter_legalizer(legalizer: Legalizer) -> Legalizer:
    """Where there is nothing to put somewhere, the data: TVM's kernel divides by the number of indices."""
    return lambda builder, call: call.args[0] if _holds_nothing(call.args[1].ty) else legalizer(builder, call)


def _mean_legalizer(legalizer: Legalizer) -> Legalizer:
    """Of no elements it is NaN, as 0 over 0 is, and 0 of whole numbers; TVM divides by their number."""

    def attempt(builder: Any, call: Any) -> Any:
        if not _holds_nothing(call.args[0].ty):
            return legalizer(builder, call)
        dtype = str(call.ty.dtype)
        none = tirx.const(math.nan if dtype.startswith(("float", "bfloat")) else 0, dtype)
        return builder.call_te(
            lambda: te.compute(call.ty.shape.values, lambda *_: none, "nothing"), primfunc_name_hint=short_name(call)
        )

    return attempt


def operands(call: Any) -> int:
    """How many there are, those within tuples included."""
    return sum(len(one.fields) if isinstance(one, relax.Tuple) else 1 for one in call.args)


def is_zero_constant(value: Any) -> bool:
    """A number that TVM makes a part of the kernel: it refuses to divide by it, and takes products with it for 0."""
    is_number = isinstance(value, tvm.ir.GenericConst) and isinstance(value.ty, relax.TensorType)
    return is_number and str(value.ty.dtype).startswith("float") and value.value.shape == () and not value.value.numpy()


def _with_zeros_as_operands(builder: Any, call: Any) -> Any:
    args = [builder.emit(one) if is_zero_constant(one) else one for one in call.args]
    return builder.normalize(relax.Call(call.op, args, call.attrs, call.ty_args))


def _in_single_precision(builder: Any, call: Any) -> Any:
    """The call of float32 for one of narrower floats, which TVM may not have; ``None`` where no call is."""
    if not any(map(_is_narrow, call.args)):
        return None
    args = [builder.emit(relax.op.astype(one, _SINGLE)) if _is_narrow(one) else one for one in call.args]
    try:
        made = builder.normalize(relax.Call(call.op, args, call.attrs, call.ty_args))
    except REFUSALS:
        return None
    is_one = isinstance(made.ty, relax.TensorType)
    same = str(made.ty.dtype) == (_SINGLE if _is_narrow(call) else str(call.ty.dtype)) if is_one else False
    return made if same else None


def _is_narrow(value: Any) -> bool:
    return isinstance(value.ty, relax.TensorType) and str(value.ty.dtype).startswith(("bfloat16", "float16", "float8"))


def _multiply_add(builder: Any, call: Any) -> Any:
    """A product and a sum."""

    def compute(a: te.Tensor, b: te.Tensor, c: te.Tensor) -> te.Tensor:
        return topi.add(topi.multiply(a, b), c)

    return builder.call_te(compute, *call.args, primfunc_name_hint=short_name(call))


def _range_legalizer(ordinary: Legalizer) -> Legalizer:
    """A kernel for long ranges, which TVM makes constants of: a few words of a file would fill the memory."""

    def legalizer(builder: Any, call: Any) -> Any:
        dtype = str(call.ty.dtype)
        if dtype not in np.sctypeDict or not all(isinstance(end, tirx.IntImm | tirx.FloatImm) for end in call.args):
            return ordinary(builder, call)
        start, stop, step = (end.value for end in call.args)
        count = (stop - start) / step if step else math.nan
        if not math.isfinite(count) or count <= _MOST_COUNTED:
            return ordinary(builder, call)
        extent = math.ceil(count)
        wide = "float32" if dtype == "float16" else dtype
        first, second = np.asarray([start, start + step]).astype(dtype).astype(wide)

        def compute() -> te.Tensor:  # as NumPy counts
            begin, apart = tirx.const(first.item(), wide), tirx.const((second - first).item(), wide)
            return te.compute((extent,), lambda i: (begin + i.astype(wide) * apart).astype(dtype), short_name(call))

        return builder.call_te(compute, primfunc_name_hint=short_name(call))

    return legalizer


def _convolution_legalizer(ordinary: Legalizer) -> Legalizer:
    """TVM's legalisation where it has one, the generic packed one elsewhere."""

    def legalizer(builder: Any, call: Any) -> Any:
        attrs = call.attrs
        blocked = any(c.isdigit() for c in attrs.data_layout + attrs.kernel_layout + attrs.out_layout)
        if not blocked and attrs.out_layout in ("", attrs.data_layout):
            return ordinary(builder, call)
        convolution = PackedConvolution.of(call)
        if convolution is None:
            return call
        return builder.call_te(convolution.compute, call.args[0], call.args[1], primfunc_name_hint=short_name(call))

    return legalizer


def _transform_legalizer(ordinary: Legalizer) -> Legalizer:
    """Transforms without padding in the order of what they write, as TVM's fusion and our schedules want them.

    TVM's legalisation is in the order of what they read, which its fusion takes for opaque.
    """

    def legalizer(builder: Any, call: Any) -> Any:
        (data,), index_map = call.args, call.attrs.index_map
        if not isinstance(data.ty.shape, relax.ShapeExpr):
            return ordinary(builder, call)
        try:
            inverse = index_map.inverse(list(data.ty.shape))
        except tvm.error.InternalError:  # no bijection: there is padding
            return ordinary(builder, call)

        def compute(x: te.Tensor) -> te.Tensor:
            shape = index_map.map_shape(list(x.shape))
            return te.compute(shape, lambda *at: x(*inverse.map_indices(list(at))), name=short_name(call))

        return builder.call_te(compute, data, primfunc_name_hint=f"te_{short_name(call)}")

    return legalizer


_OURS: Final[dict[str, Callable[[Legalizer], Legalizer]]] = {
    **dict.fromkeys(_CONVOLUTIONS, _convolution_legalizer),
    **dict.fromkeys(_FULL, _full_legalizer),
    **{name: partial(partial, legalizer) for name, legalizer in (images.LEGALIZERS | wide_norms.LEGALIZERS).items()},
    **dict.fromkeys(_SCATTERS, _scatter_legalizer),
    **dict.fromkeys(_MEANS, _mean_legalizer),
    _TRANSFORM: _transform_legalizer,
    _COUNTED: _range_legalizer,
}
"""What stands before TVM's own legalisation of an op, which it is given."""
