"""A layout rewrite as Relax ops.

In: a :class:`LayoutRewrite`. Out: calls of ``reshape``, ``permute_dims``, ``layout_transform``, ``strided_slice`` and
``nn.pad``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx

from eqsat_layout.maps import UNDEF, Extent, IndexMap
from eqsat_layout.tir.extents import expr_of
from eqsat_layout.tir.index_map import to_tvm
from eqsat_layout.tir.layout_rewrite import LayoutRewrite


def write_relax(rewrite: LayoutRewrite, dtype: str, symbols: dict[str, Any] | None = None) -> list[Any]:
    """Calls, each over a variable of its own that stands for the result of the one before; ``[]`` for the identity.

    Padding of any value is said exactly where it ends its axes and is written as 0, which serves, where it begins one.
    """
    return _RelaxWriter(dtype, symbols or {}).calls(rewrite)


class _RelaxWriter:
    def __init__(self, dtype: str, symbols: dict[str, Any]) -> None:
        self._dtype, self._symbols = dtype, symbols
        self._builder = relax.BlockBuilder()

    def calls(self, rewrite: LayoutRewrite) -> list[Any]:
        whole = rewrite.index_map
        if whole is not None:
            return self._map(whole)
        calls = self._map(rewrite.unpack)
        shape = list(rewrite.unpack.result_shape)
        if rewrite.is_cropping:
            calls.append(self._crop(rewrite, shape))
            shape = [e - sum(c) if isinstance(e, int) else e for e, c in zip(shape, rewrite.crop, strict=True)]
        if not rewrite.is_padding:
            return calls + self._map(rewrite.pack)
        if _pads_itself(rewrite.pack, shape, rewrite.pad):
            return [*calls, self._transform(shape, to_tvm(rewrite.pack), self._fill(rewrite))]
        if rewrite.fill is UNDEF and not any(low for low, _ in rewrite.pad):
            calls.append(self._pad_with_any(shape, rewrite))
            shape = [e for e, (_, high) in zip(rewrite.pack.shape, rewrite.pad, strict=True) for e in _split(e, high)]
            flat = IndexMap.reshape(shape, rewrite.pack.shape)
            pack = None if flat is None else rewrite.pack.after(flat)
            assert pack is not None, "unit axes never cut a digit"
            return calls + self._map(pack)
        calls.append(self._pad(shape, rewrite))
        return calls + self._map(rewrite.pack)

    def _map(self, index_map: IndexMap) -> list[Any]:
        if index_map.is_identity:
            return []
        source = self._var(index_map.shape)
        if index_map.keeps_order:
            return [self._builder.normalize(relax.op.reshape(source, self._shape(index_map.result_shape)))]
        if (axes := index_map.permuted_axes) is not None:
            return [self._builder.normalize(relax.op.permute_dims(source, list(axes)))]
        return [self._transform(index_map.shape, to_tvm(index_map), None)]

    def _crop(self, rewrite: LayoutRewrite, shape: Sequence[Extent]) -> Any:
        axes = [axis for axis, border in enumerate(rewrite.crop) if border != (0, 0)]
        begin = [rewrite.crop[axis][0] for axis in axes]
        end = [int(shape[axis]) - rewrite.crop[axis][1] for axis in axes]
        return self._builder.normalize(relax.op.strided_slice(self._var(shape), axes, begin, end))

    def _pad(self, shape: Sequence[Extent], rewrite: LayoutRewrite) -> Any:
        widths = [width for border in rewrite.pad for width in border]
        fill = 0.0 if rewrite.fill is UNDEF or rewrite.fill is None else float(rewrite.fill)
        return self._builder.normalize(relax.op.nn.pad(self._var(shape), widths, "constant", fill))

    def _pad_with_any(self, shape: Sequence[Extent], rewrite: LayoutRewrite) -> Any:
        """A padded axis of ``e`` becomes (1, padded e): a transform that doesn't divide pads by itself."""
        variables = [tirx.Var(f"i{a}", "int64") for a in range(len(shape))]
        indices: list[Any] = []
        for variable, extent, (_, high) in zip(variables, rewrite.pack.shape, rewrite.pad, strict=True):
            if high:
                indices += [tirx.floordiv(variable, extent), tirx.floormod(variable, extent)]
            else:
                indices.append(variable)
        return self._transform(shape, tirx.IndexMap(variables, indices, None), None)

    def _transform(self, shape: Sequence[Extent], index_map: Any, fill: Any) -> Any:
        call = relax.op.layout_transform(self._var(shape), index_map=index_map, pad_value=fill)
        return self._builder.normalize(call)

    def _fill(self, rewrite: LayoutRewrite) -> Any:
        if rewrite.fill is UNDEF or rewrite.fill is None:
            return None
        if self._dtype == "bool":
            return tirx.IntImm("bool", int(rewrite.fill))  # TVM makes an int64 of a number
        return float(rewrite.fill) if "float" in self._dtype else int(rewrite.fill)

    def _shape(self, shape: Sequence[Extent]) -> Any:
        return relax.ShapeExpr([expr_of(e, self._symbols) for e in shape])

    def _var(self, shape: Sequence[Extent]) -> Any:
        return relax.Var("x", relax.TensorType(self._shape(shape), self._dtype))


def _split(extent: Extent, is_padded: int) -> tuple[Extent, ...]:
    return (1, extent) if is_padded else (extent,)


def _pads_itself(pack: IndexMap, shape: Sequence[Extent], pad: Sequence[tuple[int, int]]) -> bool:
    """The padding is what splitting axes that do not divide makes anyway: at the end, up to the next whole block."""
    for axis, (extent, (low, high)) in enumerate(zip(shape, pad, strict=True)):
        if low or (high and isinstance(extent, str)):
            return False
        stride = max((d.stride for row in pack.dims for d in row if d.axis == axis), default=1)
        if high and isinstance(extent, int) and -(-extent // stride) * stride != extent + high:
            return False
    return True
