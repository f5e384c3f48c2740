"""TVM's importer of exported programs, where it takes torch's ops for something else.

In: nothing. Out: an importer in which indices that count from the end, as in ``y[:, -1]``, are counted from the front
(TVM's ``take`` reads before the tensor), numbers are of the type of the tensor that they divide, and what resizes and
samples take lies where torch says.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from tvm import ir, relax, tirx

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.resizing import cut, made_longer


def importer() -> Any:
    """A new one, of one program. The module of TVM's own takes long to import."""
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    class Importer(ExportedProgramImporter):  # type: ignore[misc]
        def _select(self, node: Any) -> Any:
            data, axis, index = self.env[node.args[0]], node.args[1], node.args[2]
            if not isinstance(index, int) or index >= 0:
                return super()._select(node)
            at = _counted(self.block_builder, relax.const(index, "int64"), self.shape_of(data)[axis])
            return self.block_builder.emit(relax.op.take(data, at, axis))

        def _index_tensor(self, node: Any) -> Any:
            return super()._index_tensor(_from_the_front(self, node))

        def _index_put(self, node: Any) -> Any:
            return super()._index_put(_from_the_front(self, node))

        def _div(self, node: Any) -> Any:
            """Rounded divisions by a number."""
            data, number = self.env.get(node.args[0]), node.args[1]
            is_float = isinstance(data, relax.Expr) and str(data.ty.dtype).startswith(("float", "bfloat"))
            if not is_float or not isinstance(number, int | float):
                return super()._div(node)
            args = (data, relax.const(number, str(data.ty.dtype)), *node.args[2:])
            return super()._div(SimpleNamespace(args=args, kwargs=node.kwargs))

        def _grid_sampler_2d(self, node: Any) -> Any:
            """Places lie along the last axis; TVM takes them along the second."""
            grid = self.block_builder.emit(relax.op.permute_dims(self.env[node.args[1]], [0, 3, 1, 2]))
            return super()._grid_sampler_2d(SimpleNamespace(args=(node.args[0], grid, *node.args[2:])))

        def _upsample_nearest2d(self, node: Any) -> Any:
            """The elements at or before the places; TVM takes those in the middle, and no scale as it is given."""
            data, size, scales = [*self.retrieve_args(node), None][:3]
            return _nearest(self.block_builder, data, size, scales)

        def _upsample_impl(self, x: Any, size: Any, scale_factor: Any, method: str, align_corners: bool) -> Any:
            resize = super()._upsample_impl
            if size or align_corners:
                return resize(x, size, scale_factor, method, align_corners)
            return _by_scale(
                self.block_builder, x, scale_factor, lambda *one: resize(one[0], None, one[1], method, False)
            )

    return Importer()


def _from_the_front(importer: Any, node: Any) -> Any:
    """The node, with such indices. A mask is for as many axes as it has."""
    indices = [None if one is None else importer.env[one] for one in node.args[1]]
    extents = importer.shape_of(importer.env[node.args[0]])
    if any(str(one.ty.dtype) == "bool" for one in indices if one is not None):
        return node
    counted = [
        None if one is None else _counted(importer.block_builder, one, extent)
        for one, extent in zip(indices, extents, strict=False)  # axes that follow are taken whole
    ]
    args = (node.args[0], counted, *node.args[2:])
    return SimpleNamespace(args=args, kwargs=node.kwargs, target=node.target, meta=node.meta, name=node.name)


def _by_scale(builder: relax.BlockBuilder, data: Any, scale: Any, resize: Any) -> Any:
    scales = [scale] * (len(data.ty.shape) - 2) if isinstance(scale, int | float) else list(scale)
    data, ends = made_longer(builder, data, [1, 1, *scales])
    made = resize(data, scales)
    return builder.emit(cut(builder, made, ends)) if ends else made


def _nearest(builder: relax.BlockBuilder, data: Any, size: Any, scales: Any) -> Any:
    """Whole numbers of repetitions as a resize, others as the elements that torch itself takes."""
    extents = list(data.ty.shape)[2:]
    given = [(extent, size and size[i], scales and scales[i]) for i, extent in enumerate(extents)]
    sizes = [_larger(*one) for one in given]
    if all(one is not None for one in sizes):
        means = {"coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
        return builder.emit(relax.op.image.resize2d(data, tuple(sizes), None, "NCHW", "nearest_neighbor", **means))
    for axis, one in enumerate(map(_places, *zip(*given, strict=True))):
        data = builder.emit(relax.op.take(data, relax.const(one, "int64"), axis + 2))
    return data


def _places(extent: Any, size: Any, scale: Any) -> np.ndarray[Any, Any]:
    """Which of ``extent`` elements torch takes."""
    import torch

    if not isinstance(extent, tirx.IntImm) or not isinstance(size, int | None):
        raise EqsatError(f"a resize of {extent} elements by {scale}, which may give no whole number, is not done")
    elements = torch.arange(int(extent), dtype=torch.float64)[None, None]
    taken = torch.nn.functional.interpolate(elements, size=size, scale_factor=scale)
    places: np.ndarray[Any, Any] = taken[0, 0].to(torch.int64).numpy()
    return places


def _larger(extent: Any, size: Any, scale: Any) -> Any:
    """How many elements there are where each is repeated, or as many as some size says; else None."""
    if scale is not None:
        return extent * int(scale) if scale == int(scale) else None
    is_known = isinstance(extent, tirx.IntImm) and isinstance(size, int)
    return size if not is_known or size % int(extent) == 0 else None


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
