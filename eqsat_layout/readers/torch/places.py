"""Places in tensors as torch counts them: slices, selections and indices.

In: nodes of an exported program. Out: what stands before TVM's importer for them. Indices that count from the end are
counted from the front (TVM's ``take`` reads before the tensor); slices that lie inside have a shape that says so.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.layers.indexing import index_put, index_put_where, indexed
from eqsat_layout.readers.torch.slices import bounds_from_start, checked_slice, is_inside, slice_written
from eqsat_layout.readers.torch.strided import diagonal_written, steps_written, strided, strided_places

_Base: Any = object  # TVM's importer, where it is one


class Places(_Base):  # type: ignore[misc]
    """The converters of such nodes; ``_bounds``: of the program's symbols."""

    def _select(self, node: Any) -> Any:
        data, axis, index = self.env[node.args[0]], node.args[1], node.args[2]
        if not isinstance(index, int) or index >= 0:
            return super()._select(node)
        at = _counted(self.block_builder, relax.const(index, "int64"), self.shape_of(data)[axis])
        return self.block_builder.emit(relax.op.take(data, at, axis))

    def _slice(self, node: Any) -> Any:
        """One that lies inside whatever the sizes are has a shape of which Relax knows more."""
        given = list(self.retrieve_args(node))
        data, axis, start, end, step = given + [0, None, None, 1][len(given) - 1 :]
        shape = self.shape_of(data)
        axis %= len(shape)  # TVM builds no slice of another
        node = SimpleNamespace(args=(node.args[0], axis, *node.args[2:]))
        start, end = bounds_from_start(shape[axis], start, end)
        if all(isinstance(one, int | tirx.IntImm) for one in (shape[axis], start, end)):
            return super()._slice(node)
        if step == 1 and _is_all(shape[axis], start, end):
            return data
        if is_inside(shape[axis], start, end):
            made = relax.op.strided_slice(data, [axis], [start], [end], [step], assume_inbound=True)
            return self.block_builder.emit(made)
        if not is_inside(shape[axis], start, end, self._bounds):
            return super()._slice(node)
        return checked_slice(self.block_builder, data, axis, start, end, step)

    def _slice_scatter(self, node: Any) -> Any:
        """Where there are symbolic sizes: TVM legalises those of numbers only."""
        given = list(self.retrieve_args(node))
        data, source, dim, start, end, step = given + [0, None, None, 1][len(given) - 2 :]
        axis = dim % len(data.ty.shape)
        is_known = all(isinstance(extent, tirx.IntImm) for extent in self.shape_of(data))
        if is_known:
            return super()._slice_scatter(node)
        made = None
        if step == 1:
            made = slice_written(self.block_builder, data, source, axis, (start, end), self._bounds)
        return steps_written(self.block_builder, data, source, axis, (start, end, step)) if made is None else made

    def _diagonal_scatter(self, node: Any) -> Any:
        given = list(self.retrieve_args(node))
        data, source, offset, one, other = given + [0, 0, 1][len(given) - 2 :]
        rank = len(data.ty.shape)
        return diagonal_written(self.block_builder, data, source, offset, (one % rank, other % rank))

    def _as_strided(self, node: Any) -> Any:
        return strided(self.block_builder, self._in_memory(node), *self._strides(node))

    def _as_strided_scatter(self, node: Any) -> Any:
        data, source, *_ = self.retrieve_args(node)
        size, strides, start = self._strides(node, 2)
        b, memory = self.block_builder, self._in_memory(node)
        made = index_put(b, memory, [strided_places(b, size, strides, start)], source, adds=False)
        return b.emit(relax.op.reshape(made, data.ty.shape))

    def _in_memory(self, node: Any) -> Any:
        """The elements of a node's tensor as they lie in torch's memory."""
        value = node.args[0].meta["val"]
        if not value.is_contiguous() or value.storage_offset() != 0:
            raise EqsatError("of a tensor that is not dense in memory is not done")
        base = value if value._base is None else value._base
        if base.untyped_storage().nbytes() != value.numel() * value.element_size():
            raise EqsatError("of a part of a tensor is not done, as it may read the rest")
        return self.block_builder.emit(relax.op.reshape(self.env[node.args[0]], [-1]))

    def _strides(self, node: Any, first: int = 1) -> tuple[Any, Any, Any]:
        """Sizes, strides and where they begin."""
        given = list(self.retrieve_args(node))[first:]
        start = given[2] if len(given) > 2 else node.kwargs.get("storage_offset")
        return given[0], given[1], 0 if start is None else start

    def _index_tensor(self, node: Any) -> Any:
        if any(str(one.ty.dtype) in ("bool", "uint8") for one in self._retrieve_args(node.args[1]) if one is not None):
            raise EqsatError("a result that is as large as the values of a mask say is not done")
        counted = _from_the_front(self, node)
        if _are_side_by_side(self, counted.args[1]):
            return indexed(self.block_builder, self.env[node.args[0]], self._retrieve_args(counted.args[1]))
        return super()._index_tensor(counted)

    def _index_put(self, node: Any) -> Any:
        counted = _from_the_front(self, node)
        indices = self._retrieve_args(counted.args[1])
        data, _, values, *adds = self.retrieve_args(node)
        is_mask = any(str(one.ty.dtype) in ("bool", "uint8") for one in indices if one is not None)
        make = index_put_where if is_mask else index_put
        return make(self.block_builder, data, indices, values, adds=bool(adds and adds[0]))


def _is_all(extent: Any, start: Any, end: Any) -> bool:
    return isinstance(start, int) and start == 0 and isinstance(end, ir.Expr) and ir.prim.expr_deep_equal(end, extent)


def _are_side_by_side(importer: Any, indices: Any) -> bool:
    """More than one tensor of indices, none of them a mask."""
    given = [importer._retrieve_args(one) for one in indices if one is not None]
    return len(given) > 1 and all(str(one.ty.dtype) != "bool" for one in given)


def _from_the_front(importer: Any, node: Any) -> Any:
    """The node, with such indices. A mask is for as many axes as it has."""
    indices = [None if one is None else importer.env[one] for one in node.args[1]]
    extents = importer.shape_of(importer.env[node.args[0]])
    if any(str(one.ty.dtype) == "bool" for one in indices if one is not None):
        return node
    if extents is None:
        raise EqsatError(f"the sizes of {node.args[0].name} are not known")
    counted = [
        None if one is None else _counted(importer.block_builder, one, extent)
        for one, extent in zip(indices, extents, strict=False)  # axes that follow are taken whole
    ]
    args = (node.args[0], counted, *node.args[2:])
    return SimpleNamespace(args=args, kwargs=node.kwargs, target=node.target, meta=node.meta, name=node.name)


def _counted(builder: relax.BlockBuilder, index: Any, extent: Any) -> Any:
    """``index``, from the front of an axis."""
    kind = str(index.ty.dtype)
    numbers = index.value.numpy() if isinstance(index, ir.GenericConst) else None
    if numbers is not None and (numbers >= 0).all():
        return index
    if numbers is not None and isinstance(extent, tirx.IntImm):
        return relax.const(np.where(numbers < 0, numbers + int(extent), numbers).astype(kind), kind)
    if isinstance(extent, tirx.IntImm):
        size = relax.const(int(extent), kind)
    else:
        shape = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([extent])))
        size = builder.emit(relax.op.astype(builder.emit(relax.op.squeeze(shape)), kind))
    from_end = builder.emit(relax.op.less(index, relax.const(0, kind)))
    return builder.emit(relax.op.where(from_end, builder.emit(relax.op.add(index, size)), index))
