"""How far rounding alone may carry the results of a function on given inputs.

In: the input module, a function, inputs and its results. Out: for each result, how far its elements go where every
value on the way is moved in its last digits. Where two values that are nearly equal are subtracted, that is most of
what is left, and says nothing of an optimiser; a value is judged by what its operands carry. Elements that are computed
from small numbers only stay where they are, however large the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import tvm
import tvm_ffi
from tvm import relax, te, tirx

from eqsat_layout.targets.protocol import Target
from eqsat_layout.validation.results import FEW, run, virtual_machine

_MOVED: Final = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3}
"""By how much values are moved, relatively: more than the sums of a schedule round, and Winograd's."""
_DRAWS: Final = 3
_MARGIN: Final = 4.0
_PRIMES: Final = (73856093, 19349663, 83492791, 49979687, 67867979, 86028121)


class RoundingTrial:
    """``mod`` with every value moved; it is built when it is asked for."""

    def __init__(self, mod: Any, target: Target):
        self._mod, self._target = mod, target

    def reach(self, name: str, inputs: Sequence[Any], results: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """How far each element of ``results``, what ``name`` gives of ``inputs``, may be off.

        Raises what TVM raises for a module that can't be built so.
        """
        reached = [np.zeros(one.shape) for one in results]
        for draw in range(_DRAWS):
            rng = np.random.default_rng(draw)
            moved = run(self._machine, name, [_shaken(value, rng) for value in inputs])
            for i, (own, other) in enumerate(zip(results, moved, strict=True)):
                if own.shape == other.shape and str(own.dtype) in _MOVED:
                    with np.errstate(invalid="ignore", over="ignore"):
                        apart = np.abs(own.astype("float64") - other.astype("float64"))
                    reached[i] = np.maximum(reached[i], np.where(np.isfinite(apart), apart, 0.0))
        return [_MARGIN * np.maximum(one, _usual(one)) for one in reached]

    @cached_property
    def _machine(self) -> Any:
        return virtual_machine(with_moved_values(self._mod), self._target)


def _usual(reached: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Of the rows, columns, channels that an element is in, the root mean square of the one that goes least far.

    Few draws may leave an element where it is by chance, and all the elements of a channel only if it is small.
    """
    usual = np.zeros(reached.shape)
    means = []
    for axis in range(reached.ndim if reached.ndim > 1 else 0):
        others = tuple(i for i in range(reached.ndim) if i != axis)
        if reached.size >= FEW * reached.shape[axis]:
            means.append(np.sqrt(np.mean(reached**2, axis=others, keepdims=True)))
    return usual + np.minimum.reduce(np.broadcast_arrays(*means)) if means else usual


def with_moved_values(mod: Any) -> Any:
    """``mod``, where what each call gives is moved in its last digits, another way for other values."""
    mover = _Mover(mod)
    for var, function in mod.functions_items():
        if isinstance(function, relax.Function):
            mover.builder_.update_func(var, mover.visit_expr(function))
    return mover.builder_.get()


@relax.expr_functor.mutator
class _Mover(relax.PyExprMutator):  # type: ignore[misc]
    def __init__(self, mod: Any) -> None:
        super().__init__(mod)
        self._count = 0

    def visit_var_binding_(self, binding: Any) -> None:
        ty = binding.var.ty
        is_made = isinstance(binding.value, tvm.ir.Call | relax.TupleGetItem)
        is_float = isinstance(ty, relax.TensorType) and str(ty.dtype) in _MOVED and ty.shape is not None
        if not (is_made and is_float):
            super().visit_var_binding_(binding)
            return
        self._count += 1
        number = self._count
        plain = self.builder_.emit(self.visit_expr(binding.value))
        moved = self.builder_.call_te(lambda x: _moved(x, number), plain, primfunc_name_hint="moved")
        super().visit_var_binding_(relax.VarBinding(binding.var, moved))


def _moved(x: te.Tensor, number: int) -> te.Tensor:
    """Each element times nearly 1: what it is, where it lies and the ``number`` of its tensor say by how much."""
    dtype = str(x.dtype)

    def element(*at: Any) -> Any:
        mixed = tirx.reinterpret(f"uint{tvm.DataType(dtype).bits}", x(*at)).astype("uint32")
        mixed = mixed * _number(2654435761) + _number(number * 2246822519)
        for index, prime in zip(at, _PRIMES, strict=False):
            mixed = mixed + index.astype("uint32") * _number(prime)
        mixed = (mixed ^ (mixed >> _number(15))) * _number(2246822519)
        half, wide = tirx.const(32768.0, "float32"), dtype if dtype == "float64" else "float32"
        share = ((mixed >> _number(16)).astype("float32") - half) / half
        factor = tirx.const(1.0, wide) + share.astype(wide) * tirx.const(_MOVED[dtype], wide)
        return (x(*at).astype(wide) * factor).astype(dtype)

    return te.compute(x.shape, element, "moved")


def _number(value: int) -> Any:
    return tirx.const(value % (1 << 32), "uint32")


def _shaken(value: Any, rng: np.random.Generator) -> Any:
    """An input whose floats are moved."""
    if not hasattr(value, "numpy"):
        is_tuple = hasattr(value, "__iter__") and not isinstance(value, tvm.runtime.ShapeTuple)
        return tvm_ffi.convert([_shaken(field, rng) for field in value]) if is_tuple else value
    array = value.numpy()
    share = _MOVED.get(str(array.dtype))
    if share is None:
        return value
    return tvm.runtime.tensor((array * (1 + share * rng.uniform(-1, 1, array.shape))).astype(array.dtype))
