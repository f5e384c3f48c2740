"""TVM's importer of exported programs, where it takes torch's ops for something else.

In: nothing. Out: an importer in which indices that count from the end, as in ``y[:, -1]``, are counted from the front
(TVM's ``take`` reads before the tensor), and numbers are of the type of the tensor that they divide.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from tvm import ir, relax, tirx


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
            return super()._index_tensor(self._from_the_front(node))

        def _index_put(self, node: Any) -> Any:
            return super()._index_put(self._from_the_front(node))

        def _div(self, node: Any) -> Any:
            """Rounded divisions by a number."""
            data, number = self.env.get(node.args[0]), node.args[1]
            is_float = isinstance(data, relax.Expr) and str(data.ty.dtype).startswith(("float", "bfloat"))
            if not is_float or not isinstance(number, int | float):
                return super()._div(node)
            args = (data, relax.const(number, str(data.ty.dtype)), *node.args[2:])
            return super()._div(SimpleNamespace(args=args, kwargs=node.kwargs))

        def _from_the_front(self, node: Any) -> Any:
            """The node, with such indices. A mask is for as many axes as it has."""
            indices = [None if one is None else self.env[one] for one in node.args[1]]
            extents = self.shape_of(self.env[node.args[0]])
            if any(str(one.ty.dtype) == "bool" for one in indices if one is not None):
                return node
            counted = [
                None if one is None else _counted(self.block_builder, one, extent)
                for one, extent in zip(indices, extents, strict=False)  # axes that follow are taken whole
            ]
            args = (node.args[0], counted, *node.args[2:])
            return SimpleNamespace(args=args, kwargs=node.kwargs, target=node.target, meta=node.meta, name=node.name)

    return Importer()


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
