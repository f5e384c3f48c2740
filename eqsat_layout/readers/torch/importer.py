"""TVM's importer of exported programs, where it takes torch's ops for something else.

In: nothing. Out: an importer in which numbers are of the type of the tensor that they divide, and whose slices, indices
and layers are torch's (:mod:`~eqsat_layout.readers.torch.places`, :mod:`~eqsat_layout.readers.torch.neural_layers`).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from tvm import ir, relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.notes import said_by
from eqsat_layout.readers.layers.dtypes import number_of_type, without_one, zero_kept
from eqsat_layout.readers.layers.whole_powers import whole_power
from eqsat_layout.readers.torch import (
    arithmetic,
    experts,
    functions,
    missing_ops,
    ordered,
    recurrent,
    special,
    tables,
    vision,
)
from eqsat_layout.readers.torch.arithmetic import differs
from eqsat_layout.readers.torch.derived_sizes import with_numbers, with_own_symbols
from eqsat_layout.readers.torch.extents import (
    extents_of,
    has_extents,
    in_words_of,
    is_open,
    relax_extent,
    symbols_of,
    with_extents,
)
from eqsat_layout.readers.torch.missing_ops import SHIFTS
from eqsat_layout.readers.torch.neural_layers import NeuralLayers
from eqsat_layout.readers.torch.nodes import TorchNodeError, args_seen, ignored, watched
from eqsat_layout.readers.torch.numbers import is_tensor, of_size, of_type
from eqsat_layout.readers.torch.places import Places
from eqsat_layout.readers.torch.single_numbers import is_along_an_axis, with_one_axis, without_axes
from eqsat_layout.readers.torch.size_names import with_names_of_sizes
from eqsat_layout.readers.torch.types import check_made_type, dtype_name, promoted_type

_KINDS: Final = ("Tensor", "Scalar")


def importer() -> Any:
    """A new one, of one program. The module of TVM's own takes long to import."""
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    return type("Importer", (_Mended, Places, NeuralLayers, ExportedProgramImporter), {})()


_Base: Any = object  # TVM's importer, where it is one


class _Mended(_Base):  # type: ignore[misc]
    """What stands before TVM's importer."""

    def create_convert_map(self) -> Any:
        known = super().create_convert_map()
        known |= {name: self._matmul for name in ("matmul.default", "mm.default", "bmm.default")}
        known["empty_permuted.default"] = self._empty
        del known["_native_batch_norm_legit_functional.default"]  # which gives 0 for statistics; torch writes it out
        known |= {f"{name}.default": getattr(self, f"_{name}") for name in ("as_strided_scatter", "diagonal_scatter")}
        known["sym_stride.int"] = self._sym_stride
        known |= {name: self._any for name in ("any.default", "any.dim", "any.dims")}
        for room in _ROOMS:
            known |= {name: self._own(make) for name, make in room.MAKERS.items()}
        pools = {f"max_pool{n}d_with_indices.default": getattr(relax.op.nn, f"max_pool{n}d") for n in (2, 3)}
        known |= {name: self._max_pool_of(pools[name], known[name]) for name in pools}
        known |= {name: self._of_one_type(known[name]) for name in _OF_ONE_TYPE & known.keys()}
        return {name: self._checked(convert) for name, convert in known.items()}

    def create_input_vars(self, program: Any) -> Any:
        held, inputs, bounds = super().create_input_vars(program)
        inputs, bounds = with_own_symbols(with_numbers(inputs), bounds)
        inputs, bounds = with_names_of_sizes(program, inputs, bounds)
        self._bounds = bounds
        self._symbols = symbols_of({node.name: node.meta.get("val") for node in program.graph.nodes}, inputs)
        # 2 is what torch says of all sizes that it was not told of, and programs run with 1 nevertheless
        said = {name: (least if least > 2 else 0, most) for name, (least, most) in bounds.items()}
        return held, inputs, said

    def _check_unsupported_func_type(self, nodes: Any) -> None:
        for node in nodes:
            if node.op == "call_function" and node.target.__name__ not in self.convert_map:
                raise TorchNodeError(f"{_called(node)}: nothing here converts this op", node.target)

    def retrieve_args(self, node: Any) -> Any:
        return args_seen(self._retrieve_args(tuple(tuple.__iter__(node.args))), node.args)

    def _checked(self, convert: Any) -> Any:
        """``convert``, which looks at all arguments and gives what torch says."""

        def converted(node: Any) -> Any:
            own = watched(node)
            try:
                made = self._along_no_axes(convert, own, node) if is_along_an_axis(node) else convert(own)
                if is_open(made) and self._says_sizes_anew(node):
                    made = convert(own)
                if not node.target.__name__.startswith(_WITHOUT_VALUES):
                    check_made_type(made, node.meta.get("val"))
                    if unseen := ignored(own):
                        raise EqsatError(f"with {', '.join(unseen)} is not done")
                    made = with_extents(self.block_builder, made, node.meta.get("val"), self._symbols)
            except Exception as error:  # converters raise whatever they meet
                raise TorchNodeError(f"{_called(node)}: {said_by(error)}", node.target) from error
            return made

        return converted

    def _along_no_axes(self, convert: Any, watched_node: Any, node: Any) -> Any:
        with with_one_axis(self.block_builder, self.env, node):
            return without_axes(self.block_builder, convert(watched_node))

    def _says_sizes_anew(self, node: Any) -> bool:
        """Whether some operand of a node got torch's words for its sizes, in which operands of one size agree."""
        before = {one: self.env[one] for one in node.all_input_nodes if one in self.env}
        b, symbols = self.block_builder, self._symbols
        after = {one: in_words_of(b, made, one.meta.get("val"), symbols) for one, made in before.items()}
        self.env.update(after)
        return any(after[one] is not made for one, made in before.items())

    def _own(self, make: Any) -> Any:
        def converted(node: Any) -> Any:
            named = {name: self._retrieve_args(value) for name, value in node.kwargs.items() if value is not None}
            return make(self.block_builder, *self.retrieve_args(node), **named)

        return converted

    def _of_one_type(self, convert: Any) -> Any:
        """Operands of the type that torch computes in, and the second one times ``alpha``."""

        def converted(node: Any) -> Any:
            dtype = promoted_type(node)
            if dtype is None:
                return convert(node)
            values = list(self.retrieve_args(node))
            alpha = values.pop(2) if len(values) > 2 else node.kwargs.get("alpha", 1)
            op = node.target.__name__.partition(".")[0]
            one, other = (of_type(self.block_builder, value, dtype) for value in values[:2])
            if op == "mul":
                factors = one, other
                one, other = zero_kept(one, other), zero_kept(other, one)
            if not node.meta["val"].shape:  # Relax takes a size for a tensor of one axis
                one, other = (one if is_tensor(one) else of_size(self.block_builder, one) for one in (one, other))
            if alpha != 1:
                one, other = (other, one) if op == "rsub" else (one, other)
                scale = zero_kept(number_of_type(alpha, dtype), other)
                made = self.block_builder.emit(relax.op.multiply(other, scale))
                other = without_one(self.block_builder, made, other)
                one, other = (other, one) if op == "rsub" else (one, other)
            if isinstance(one, ir.GenericConst) and isinstance(other, ir.GenericConst):
                one = self.block_builder.emit(one)
            if dtype == "bool" and op in _OF_BOOLEANS:
                return self.block_builder.emit(_OF_BOOLEANS[op](one, other))
            kwargs = {name: value for name, value in node.kwargs.items() if name != "alpha"}
            made = convert(SimpleNamespace(args=(one, other), kwargs=kwargs, target=node.target, meta=node.meta))
            return without_one(self.block_builder, made, *factors) if op == "mul" else made

        return converted

    def _reshape(self, node: Any) -> Any:
        """To the extents that torch says; Relax knows of -1 only what is left of all elements."""
        extents = extents_of(node.meta.get("val"), self._symbols)
        if extents is None:
            return super()._reshape(node)
        data, _ = self.retrieve_args(node)
        return data if has_extents(data, extents) else self.block_builder.emit(relax.op.reshape(data, extents))

    def _sym_stride(self, node: Any) -> Any:
        """What torch says of it, whose tensors lie in memory as they like."""
        list(self.retrieve_args(node))
        made = relax_extent(node.meta["val"], self._symbols)
        if made is None:
            raise EqsatError("its size is not known")
        return made

    def _empty(self, node: Any) -> Any:
        """What nobody reads before it is written: zeros, in the order of their axes."""
        list(self.retrieve_args(node)), node.kwargs.get("dtype")  # which torch has taken into account
        extents, dtype = extents_of(node.meta["val"], self._symbols), str(node.meta["val"].dtype)
        if extents is None:
            raise EqsatError("its size is not known")
        return self.block_builder.emit(relax.op.zeros(extents, dtype_name(dtype)))

    def _arange(self, node: Any) -> Any:
        """Steps back are as many as torch says; TVM counts two more of them."""
        given, extents = list(self.retrieve_args(node)), extents_of(node.meta["val"], self._symbols)
        start, step = (given[0], given[2]) if len(given) == 3 else (0, 1)
        if extents is None or not isinstance(step, int) or step > 0:
            return super()._arange(node)
        node.kwargs.get("dtype")  # which torch has taken into account
        b, dtype = self.block_builder, dtype_name(node.meta["val"].dtype)
        places = b.emit(relax.op.multiply(b.emit(relax.op.arange(0, *extents, 1, dtype)), relax.const(step, dtype)))
        first = of_size(b, start) if isinstance(start, relax.Expr) else start
        return b.emit(relax.op.add(places, of_type(b, first, dtype)))

    def _matmul(self, node: Any) -> Any:
        """In the type that torch says; TVM gives float32 always."""
        one, other = self.retrieve_args(node)
        return self.block_builder.emit(relax.op.matmul(one, other))

    def _where(self, node: Any) -> Any:
        """``where`` of operands of two types, promoted to one as torch does it."""
        dtype = dtype_name(node.meta["val"].dtype)
        condition, one, other = self.retrieve_args(node)
        both = [of_type(self.block_builder, value, dtype) for value in (one, other)]
        return self.block_builder.emit(relax.op.where(condition, *both))

    def _any(self, node: Any) -> Any:
        """Whether any element is not 0, as a byte for bytes; TVM's converter takes the maximum instead."""
        b, given = self.block_builder, list(self.retrieve_args(node))
        data, axes, keepdims = given + [None, False][len(given) - 1 :]
        dtype = str(data.ty.dtype)
        if dtype != "bool":
            data = differs(b, data, relax.const(0, dtype))
        made = b.emit(relax.op.max(of_type(b, data, "int8"), axes, bool(keepdims)))
        return of_type(b, of_type(b, made, "bool"), dtype_name(node.meta["val"].dtype))

    def _pow(self, node: Any) -> Any:
        """Roots are such, as in torch: of -inf NaN, of -0 -0. Those of float16 are powers there. TVM's converter
        writes out as many products as the exponent says."""
        data, exponent = self.retrieve_args(node)
        if promoted_type(node) is None:
            return super()._pow(node)
        dtype = dtype_name(node.meta["val"].dtype)  # powers of truth values are numbers
        data = of_type(self.block_builder, data, dtype)
        root = _ROOTS.get(exponent) if isinstance(exponent, float) else None
        if root is not None and dtype != "float16":
            return self.block_builder.emit(root(data))
        if "int" in dtype and isinstance(exponent, int):
            return whole_power(self.block_builder, data, exponent)
        return arithmetic.power(self.block_builder, data, of_type(self.block_builder, exponent, dtype))

    def _full(self, node: Any) -> Any:
        """Of numbers that the type does not hold, too, which TVM's converter does not take."""
        size, value = self.retrieve_args(node)
        dtype = dtype_name(node.meta["val"].dtype)
        if not isinstance(value, int) or "int" not in dtype:
            return super()._full(node)
        node.kwargs.get("dtype")  # which torch has taken into account
        return self.block_builder.emit(relax.op.full(list(size), number_of_type(value, dtype), dtype))


_ROOMS: Final = (missing_ops, arithmetic, functions, special, ordered, tables, vision, recurrent, experts)
"""What ops are made in, by their names."""

_OF_ONE_TYPE: Final = frozenset(
    [
        f"{op}.{kind}"
        for op in ["add", "sub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge", "fmod", "remainder", "rsub"]
        for kind in _KINDS
    ]
    + [f"bitwise_{op}.{kind}" for op in ("and", "or", "xor") for kind in _KINDS]
    + [
        "maximum.default",
        "minimum.default",
        "max.other",
        "min.other",
        "atan2.default",
        "pow.Tensor_Tensor",
        "pow.Scalar",
    ]
    + ["floor_divide.default", "remainder.default", "div.Tensor_mode", "logaddexp.default"]
    + list(SHIFTS)
)
"""Ops whose operands are brought to one type before."""

_ROOTS: Final = {0.5: relax.op.sqrt, -0.5: relax.op.rsqrt}
"""By their exponents."""

_OF_BOOLEANS: Final = {"add": relax.op.logical_or, "mul": relax.op.logical_and}
"""What arithmetic is of booleans."""

_WITHOUT_VALUES: Final = ("_assert", "sym_constrain", "dropout", "native_dropout")
"""Ops that check, or that do nothing but in training."""


def _called(node: Any) -> str:
    return f"node {node.name} ({node.target})"
