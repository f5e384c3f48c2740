"""Blocks that are products of matrices, read off their indices.

In: an unscheduled PrimFunc. Out: its axes as those of a product: of a batch, of rows (of the left operand), of columns
(of the right one), and of steps (of the sum); both operands as expressions over them; and the elementwise nest that
follows. Convolutions are products too: their rows are the places of a window, guards of padding and all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import tvm
import tvm_ffi
from tvm import tirx

from eqsat_layout.errors import Refused
from eqsat_layout.targets.cuda.kernels.arithmetics import common_type
from eqsat_layout.targets.cuda.kernels.extents import assumed, product_of_extents
from eqsat_layout.targets.cuda.kernels.operands import SUMS, FlatAxes, Operand, without_conversions
from eqsat_layout.targets.cuda.kernels.statements import number
from eqsat_layout.targets.gpu.kernels.nests import Axis, Nest, nests_of, without_inlined_nests
from eqsat_layout.targets.schedules.accesses import StageAccess, as_int
from eqsat_layout.targets.schedules.exact_values import with_hidden_arithmetic
from eqsat_layout.tir.analyzers import analyzer_over
from eqsat_layout.tir.intrinsics import is_choice, is_zero
from eqsat_layout.tir.structural import is_one_of, nodes_of, structural_map, substitute
from eqsat_layout.tir.whole_reads import takes_all

FEW: Final = 32
"""Steps of a sum."""
_LONGEST: Final = 16
"""Elements that one copy moves, at most."""
_MOST: Final = 2**31
"""Elements of a tensor, for indices of 32 bits."""


Factors: TypeAlias = tuple[Operand, Operand]


@dataclass(frozen=True)
class Product:
    """``sums[batch, rows, columns] = sum over steps of left[batch, rows, steps] * right[batch, steps, columns]``.

    ``sums``: the buffer that they are in, or would be. ``store``: of a result, over the same axes; its value has a load
    of the sum in it. ``fixed``: the place along axes of one element.
    """

    func: Any
    sums: Any
    store: Any
    batch: FlatAxes
    rows: FlatAxes
    columns: FlatAxes
    steps: FlatAxes
    left: Operand
    right: Operand
    fixed: Mapping[Any, Any]

    @property
    def is_known(self) -> bool:
        """No extent is left to the host."""
        groups = (self.batch, self.rows, self.columns, self.steps)
        return all(as_int(group.extent) is not None for group in groups)

    @property
    def dtype(self) -> str:
        """See :func:`~eqsat_layout.targets.cuda.kernels.arithmetics.common_type`."""
        return common_type(self.left.dtype, self.right.dtype)


def product_of(func: Any) -> Product:
    """Raises :class:`~eqsat_layout.errors.Refused` for what is no product, or none for tensor cores."""
    product = any_product_of(func)
    if not product.rows.axes:  # tensor cores would have one row of 8
        if assumed(product.steps.extent) < FEW:
            raise Refused("nothing is read twice, and little is summed: tensor cores are of no use")
        if _slides(product):
            raise Refused("windows of one channel have nothing to share: tensor cores are of no use")
    return product


def _slides(product: Product) -> bool:
    """The data are windows: an index counts places and steps."""
    guarded = product.right.guarded
    indices = [] if guarded is None else list(guarded[0].indices)
    used = [nodes_of(index, tirx.Var) for index in indices]
    groups = (product.columns.axes, product.steps.axes)
    return any(all(any(one.same_as(axis.var) for axis in axes for one in own) for axes in groups) for own in used)


def any_product_of(func: Any) -> Product:
    """Where one operand is the same for all rows and columns, too: there are no rows then."""
    func = narrowed(func)
    nests = without_inlined_nests(nests_of(with_hidden_arithmetic(func)), list(func.params))
    reductions = [nest for nest in nests if nest.reduced]
    if len(reductions) != 1 or len(nests) > 2 or nests[0] is not reductions[0]:
        raise Refused("it is no reduction, alone or with one nest after it")
    return product_of_nest(func, nests[0], nests[1] if nests[1:] else None)


def product_of_nest(func: Any, nest: Nest, follower: Nest | None) -> Product:
    """``nest`` is the sum, and ``follower`` what reads it."""
    if not nest.is_plain:
        raise Refused("its sums are not stored where its axes are")
    if any(as_int(axis.extent) == 0 for axis in (*nest.spatial, *nest.reduced)):
        raise Refused("it has no elements")
    axes, factors, store = nest.spatial, factors_of(nest), _own_store(nest)
    if follower is not None:
        axes, factors, store = _over_axes_of(follower, nest, factors, func)
    spatial, factors, store = _with_groups_apart(axes, *_simplified((*axes, *nest.reduced), factors, store))
    groups = _groups(spatial, nest.reduced, factors)
    access = StageAccess(store.buffer, tuple(store.indices))
    along = [axis for axis in (*groups["first"], *groups["second"]) if access.stride(axis.var) == 1]
    is_swapped = along[0] in groups["first"] if along else not groups["second"]
    names = ("second", "first") if is_swapped else ("first", "second")
    left, right = (factors[1], factors[0]) if is_swapped else factors
    rows, columns = (groups[name] for name in names)
    if not columns:
        raise Refused("it has no columns")
    columns.sort(key=lambda axis: access.stride(axis.var) == 1)
    steps = sorted(groups["steps"], key=lambda axis: step_key(axis, left, right))
    fixed = {axis.var: tirx.const(0, "int32") for axis in (*spatial, *nest.reduced) if is_one(axis)}
    batch, *sides, sums = (FlatAxes(tuple(axes)) for axes in (groups["batch"], rows, columns, steps))
    return Product(func, nest.buffers[0], store, batch, sides[0], sides[1], sums, left, right, fixed)


def narrowed(func: Any) -> Any:
    """The function with indices of 32 bits."""
    tensors = {parameter for parameter in func.params if type(parameter.ty) is tirx.BufferType}
    sizes = {var for tensor in tensors for extent in tensor.ty.shape for var in nodes_of(extent, tirx.Var)}
    for parameter in func.params:
        if parameter not in tensors:
            if parameter not in sizes:
                raise Refused(f"{parameter.name} is no tensor, nor a size of one")
        elif str(parameter.ty.dtype) == "int64":  # TVM's pass would make its elements narrow too
            raise Refused(f"{parameter.name} is of 64-bit integers")
        elif (as_int(product_of_extents(parameter.ty.shape)) or 0) >= _MOST:
            raise Refused(f"the size of {parameter.name} is not one of 32 bits")
    var = tvm.ir.GlobalVar("main")
    return tirx.transform.ForceNarrowIndexToInt32()(tvm.IRModule({var: func}))[var]


def is_one(axis: Axis) -> bool:
    """It has one place, whatever symbols are."""
    return as_int(axis.extent) == 1


def _own_store(nest: Nest) -> Any:
    """The store of the sum itself, as a result."""
    (store,) = nest.stores
    return tirx.BufferStore(store.buffer, tirx.BufferLoad(store.buffer, list(store.indices)), store.indices)


def _over_axes_of(follower: Nest, nest: Nest, factors: Factors, func: Any) -> tuple[tuple[Axis, ...], Factors, Any]:
    """Factors and the store over the follower's axes; each of its elements reads one sum, and each sum is read once."""
    sums = nest.buffers[0]
    loads = follower.loads(sums)
    if is_one_of(sums, func.params):
        raise Refused("the sums are a result of their own")
    if follower.reduced or len(follower.stores) != 1 or not loads:
        raise Refused("what follows the sums is not elementwise")
    indices = list(loads[0].indices)
    if any(not tvm_ffi.structural_equal(list(load.indices), indices) for load in loads):
        raise Refused("what follows reads several sums for an element")
    sizes = [product_of_extents(axis.extent for axis in one.spatial) for one in (follower, nest)]
    if not tvm.sym.Analyzer().can_prove_equal(*map(number, sizes)):
        raise Refused("what follows does not read each sum once")
    moving = [(index, axis.extent) for index, axis in zip(indices, nest.spatial, strict=True) if not is_one(axis)]
    own, extents = zip(*moving, strict=True) if moving else ((), ())
    is_permuted = {*indices} == {axis.var for axis in follower.spatial}
    if not is_permuted and not takes_all(own, {axis.var: axis.extent for axis in follower.spatial}, extents):
        raise Refused("what follows does not read each sum once")
    places = {axis.var: index for axis, index in zip(nest.spatial, indices, strict=True)}
    left, right = (Operand(substitute(one.value, places)) for one in factors)
    return follower.spatial, (left, right), follower.stores[0]


def _simplified(axes: Sequence[Axis], factors: Factors, store: Any) -> tuple[Factors, Any]:
    """Indices as simple as the extents of the axes let them be."""
    analyzer = analyzer_over(axes)
    left, right = (Operand(with_simple_indices(one.value, analyzer)) for one in factors)
    return (left, right), with_simple_indices(store, analyzer)


def with_simple_indices(node: Any, analyzer: Any) -> Any:
    """Conditions of what is chosen are simplified too."""

    def on_call(call: Any) -> Any:
        if not is_choice(call):
            return call
        args = [analyzer.simplify(call.args[0]), *list(call.args)[1:]]
        return tvm.ir.Call(call.op, args, attrs=call.attrs, ret_ty=call.ty)

    def on_load(load: Any) -> Any:
        return tirx.BufferLoad(load.source, [analyzer.simplify(index) for index in load.indices])

    def on_store(one: Any) -> Any:
        return tirx.BufferStore(one.buffer, one.value, [analyzer.simplify(index) for index in one.indices])

    return structural_map(node, (tvm.ir.TensorLoad, on_load), (tirx.BufferStore, on_store), (tvm.ir.Call, on_call))


def factors_of(nest: Nest) -> Factors:
    """Those of the product that is added up; refused for other sums."""
    (store,), (init,) = nest.stores, nest.inits
    total = store.value
    parts = [total.a, total.b] if isinstance(total, tirx.Add) else []
    products = [part for part in parts if isinstance(part, tirx.Mul)]
    sums = [part for part in parts if isinstance(part, tvm.ir.TensorLoad) and part.source.same_as(store.buffer)]
    if len(products) != 1 or len(sums) != 1 or not is_zero(init.value):
        raise Refused("it is no sum of products from zero")
    left, right = (Operand(without_conversions(value)) for value in (products[0].a, products[0].b))
    dtype = common_type(left.dtype, right.dtype).partition(" ")[0]
    if str(store.buffer.ty.dtype) not in SUMS.get(dtype, ()) or not {left.dtype, right.dtype} <= set(SUMS):
        raise Refused(f"sums of {store.buffer.ty.dtype} of products of {left.dtype} and {right.dtype}")
    if not all(nodes_of(one.value, tvm.ir.TensorLoad) for one in (left, right)):
        raise Refused("a factor is the same everywhere")
    return left, right


_KINDS: Final = {
    (True, True, False): "batch",
    (True, False, False): "first",
    (False, True, False): "second",
    (True, True, True): "steps",
}
"""Of axes: whether the factors depend on them, and whether they are summed over."""


def _groups(spatial: Sequence[Axis], reduced: Sequence[Axis], factors: Factors) -> dict[str, list[Axis]]:
    groups: dict[str, list[Axis]] = {name: [] for name in _KINDS.values()}
    for axes, is_sum in ((spatial, False), (reduced, True)):
        for axis in axes:
            if is_one(axis):
                continue
            kind = _KINDS.get((factors[0].uses(axis), factors[1].uses(axis), is_sum))
            if kind is None:
                raise Refused(f"no product: only one factor, or none, depends on axis {axis.var.name}")
            groups[kind].append(axis)
    if not groups["steps"]:
        raise Refused("it sums over nothing")
    return groups


def _with_groups_apart(spatial: Sequence[Axis], factors: Factors, store: Any) -> tuple[list[Axis], Factors, Any]:
    """Where a factor depends on an axis only by its block (``o // 16``) or only by the place in it, as weights of a
    transposed convolution do, these are two axes."""
    done: list[Axis] = []
    for axis in spatial:
        extent = as_int(axis.extent) or 0
        nodes = [node for one in factors for node in nodes_of(one.value, tirx.FloorDiv, tirx.FloorMod)]
        sizes = {_divisor(node, axis) for node in nodes} if all(one.uses(axis) for one in factors) else set()
        splits = [_Split(axis, size, factors) for size in sorted(sizes) if 1 < size < extent and extent % size == 0]
        best = max(splits, key=lambda split: split.gained, default=None)
        if best is None or not best.gained:
            done.append(axis)
        else:
            factors, store = best.factors, _in_place_of(store, axis, best.axes)
            done += best.axes
    return done, factors, store


class _Split:
    """An axis as blocks of ``size`` and places in them. ``gained``: on how many of these one factor alone depends."""

    def __init__(self, axis: Axis, size: int, factors: Factors) -> None:
        self.axes = _two_of(axis, size)
        left, right = (Operand(_in_place_of(one.value, axis, self.axes)) for one in factors)
        self.factors = (left, right)
        self.gained = sum(left.uses(part) != right.uses(part) for part in self.axes)


def with_places_apart(product: Product) -> Product:
    """Where places of several axes lie along one, as rows and columns of an image that are numbered through, it is as
    many axes again."""
    columns = product.columns.axes
    for number_, axis in enumerate(columns):
        operands = (product.left.value, product.right.value)
        nodes = [one for value in operands for one in nodes_of(value, tirx.FloorDiv, tirx.FloorMod)]
        extent = as_int(axis.extent) or 0
        for size in sorted(size for size in {_divisor(one, axis) for one in nodes} if 1 < size < extent):
            if extent % size == 0:
                axes = _two_of(axis, size)
                left, right, store = (_in_place_of(one, axis, axes) for one in (*operands, product.store))
                places = FlatAxes((*columns[:number_], *axes, *columns[number_ + 1 :]))
                apart = replace(product, columns=places, left=Operand(left), right=Operand(right), store=store)
                return with_places_apart(apart)
    return product


def _two_of(axis: Axis, size: int) -> tuple[Axis, Axis]:
    """Blocks of an axis, and places in them."""
    block, place = (tirx.Var(f"{axis.var.name}_{name}", "int32") for name in ("block", "place"))
    return Axis(block, number((as_int(axis.extent) or 0) // size)), Axis(place, number(size))


def _divisor(node: Any, axis: Axis) -> int:
    return (as_int(node.b) or 0) if node.a.same_as(axis.var) else 0


def _in_place_of(node: Any, axis: Axis, axes: tuple[Axis, Axis]) -> Any:
    """``node`` over two axes in the place of one."""
    block, place = axes
    placed = substitute(node, {axis.var: block.var * place.extent + place.var})
    return with_simple_indices(placed, analyzer_over(axes))


def step_key(axis: Axis, left: Operand, right: Operand) -> tuple[int, bool, int]:
    """What has long runs in memory comes last, in the left operand at first; windows come before."""
    strides = [operand.stride(axis) for operand in (left, right)]
    run = math.gcd(as_int(axis.extent) or 1, _LONGEST)
    return sum(run for stride in strides if stride == 1), strides[0] == 1, -abs(strides[0] or 0)
