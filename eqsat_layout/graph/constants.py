"""Constants: what they are made of, and their elements as laid out for their users.

In: constants of the program, under views and ops. Out: Relax constants. Elements are computed when the plan is emitted,
and only of what the plan uses: ops by running their PrimFuncs, which are compiled together, layouts with NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax

from eqsat_layout.graph.borders import Part
from eqsat_layout.graph.graph import Signature, TensorType
from eqsat_layout.maps import UNDEF, Format, IndexMap

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Applied:
    """An op over constants only; it has one result and is no view."""

    signature: Signature
    operands: tuple[Constant, ...]

    @property
    def type(self) -> TensorType:
        (ty,) = self.signature.results
        assert ty is not None
        return ty


@dataclass(frozen=True)
class Constant:
    """A constant of the program or an op over constants, with the views that it is seen under, innermost first.

    Views are composed as far as their digits divide and identities are dropped, so that a cycle of views gives the
    same constant again and not a new one in every round.
    """

    name: str
    source: Any
    views: tuple[Part, ...] = ()

    def under(self, view: Part) -> Constant:
        """The constant that ``view``, a pad or a crop makes of this one."""
        last = self.views[-1] if self.views else None
        composed = view.after(last) if isinstance(view, IndexMap) and isinstance(last, IndexMap) else None
        views = (*self.views, view) if composed is None else (*self.views[:-1], composed)
        is_identity = isinstance(views[-1], IndexMap) and views[-1].is_identity
        return Constant(self.name, self.source, views[:-1] if is_identity else views)

    @property
    def key(self) -> str:
        """Text that identifies it."""
        return "|".join((self.name, *(view.key for view in self.views)))

    @property
    def dtype(self) -> str:
        """The dtype of its elements."""
        return self.source.type.dtype if isinstance(self.source, Applied) else str(self.source.ty.dtype)

    @property
    def elements(self) -> int:
        """Number of elements; constants have no symbolic sizes."""
        if self.views:
            return math.prod(int(e) for e in self.views[-1].result_shape)
        shape = self.source.type.shape if isinstance(self.source, Applied) else self.source.ty.shape.values
        return math.prod(int(e) for e in shape)

    def applied(self) -> list[Applied]:
        """The ops that it is made by, operands before users."""
        if not isinstance(self.source, Applied):
            return []
        return [a for operand in self.source.operands for a in operand.applied()] + [self.source]


class ConstantPool:
    """Makes constants as laid out for their users; equal uses share one."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, Format], Any] = {}
        self._arrays: dict[str, Array] = {}
        self._kernels: dict[str, Any] = {}

    def prepare(self, constants: Iterable[Constant]) -> None:
        """Compiles the ops that the constants are made by, all at once."""
        ops = {a.signature.key: a.signature for c in constants for a in c.applied()}
        missing = {key: s for key, s in sorted(ops.items()) if key not in self._kernels}
        if not missing:
            return
        functions = {f"op{i}": s.func.with_attr("global_symbol", f"op{i}") for i, s in enumerate(missing.values())}
        with tvm.transform.PassContext(opt_level=0):
            built = tvm.compile(tvm.IRModule(functions), target="llvm")
        for i, key in enumerate(missing):
            self._kernels[key] = built[f"op{i}"]

    def expr(self, constant: Constant, fmt: Format) -> Any:
        """The Relax constant that holds ``constant`` in ``fmt``; the program's own where nothing was done to it."""
        if not constant.views and fmt.is_row_major and not isinstance(constant.source, Applied):
            return constant.source
        key = (constant.key, fmt)
        if key not in self._made:
            fmt = fmt.with_fill(0.0) if fmt.fill is UNDEF else fmt  # any bits will do, 0 is tame
            array = self._array(constant)
            self._made[key] = relax.const(fmt.lay(array), str(array.dtype))
        return self._made[key]

    def _array(self, constant: Constant) -> Array:
        if not isinstance(constant.source, Applied):
            array: Array = constant.source.value.numpy()
        elif constant.name in self._arrays:
            array = self._arrays[constant.name]
        else:
            array = self._arrays[constant.name] = self._run(constant.source)
        for view in constant.views:
            array = view.apply(array)
        return array

    def _run(self, applied: Applied) -> Array:
        """Runs the op's PrimFunc, results last, on its operands."""
        operands = [tvm.runtime.tensor(np.asarray(self._array(o), order="C")) for o in applied.operands]
        shape = [int(e) for e in applied.type.shape]
        result = tvm.runtime.empty(shape, applied.type.dtype)
        self._kernels[applied.signature.key](*operands, result)
        array: Array = result.numpy()
        return array
