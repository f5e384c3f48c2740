"""Layers of networks where TVM's importer computes in other types or places than torch.

In: nodes of an exported program. Out: what stands before TVM's importer for them: pools, norms, convolutions, samples
and resizes.
"""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any

from tvm import relax

from eqsat_layout.errors import EqsatError
from eqsat_layout.readers.torch.numbers import of_type
from eqsat_layout.readers.torch.resizes import by_scale, bytes_resized, nearest
from eqsat_layout.readers.torch.types import check_made_type

_Base: Any = object  # TVM's importer, where it is one


class NeuralLayers(_Base):  # type: ignore[misc]
    """The converters of such nodes."""

    def _max_pool_of(self, op: Any, with_places: Any) -> Any:
        """Relax's own pool where nobody asks for the places, and where its windows are as many as torch's."""

        def converted(node: Any) -> Any:
            if any(user.target is not operator.getitem or user.args[1] for user in node.users):
                return with_places(node)
            defaults = [None, None, (), 0, 1, False]
            given = list(self.retrieve_args(node))
            data, size, stride, padding, dilation, ceil = given + defaults[len(given) :]
            pool = op(data, size, stride or size, padding, dilation, ceil)
            values = self.block_builder.normalize(pool)
            try:
                check_made_type(values, node.meta["val"][0])
            except EqsatError:
                return with_places(node)
            return relax.Tuple([self.block_builder.emit(pool)])

        return converted

    def _layer_norm_impl(self, x: Any, gamma: Any, beta: Any, eps: float, normalized_shape: Any) -> Any:
        """TVM has a kernel for float32 and float16 alone; torch computes bfloat16 in float32 too."""
        b, dtype = self.block_builder, str(x.ty.dtype)
        if dtype == "bfloat16":
            wide = [one if one is None else of_type(b, one, "float32") for one in (x, gamma, beta)]
            return of_type(b, super()._layer_norm_impl(*wide, eps, normalized_shape), dtype)
        if dtype != "float64":
            return super()._layer_norm_impl(x, gamma, beta, eps, normalized_shape)
        axes = [-1 - i for i in range(len(normalized_shape))]
        centred = b.emit(relax.op.subtract(x, b.emit(relax.op.mean(x, axes, keepdims=True))))
        spread = b.emit(relax.op.mean(b.emit(relax.op.multiply(centred, centred)), axes, keepdims=True))
        scale = b.emit(relax.op.rsqrt(b.emit(relax.op.add(spread, relax.const(eps, dtype)))))
        made = b.emit(relax.op.multiply(centred, scale))
        made = made if gamma is None else b.emit(relax.op.multiply(made, gamma))
        return made if beta is None else b.emit(relax.op.add(made, beta))

    def _convolution(self, node: Any) -> Any:
        """In the type of its operands, halves summed in float32 as torch's are; TVM's gives float32 always, and knows
        no transposed ones along three axes."""
        data, weight, bias, strides, padding, dilation, is_transposed, output_padding, groups = self.retrieve_args(node)
        dtype, axes = str(data.ty.dtype), len(data.ty.shape) - 2
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        attributes = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups, "out_dtype": wide}
        if is_transposed:
            attributes["output_padding"] = output_padding
        op = getattr(relax.op.nn, f"conv{axes}d{'_transpose' if is_transposed else ''}")
        made = self.block_builder.emit(op(data, weight, **attributes))
        if bias is not None:
            along = self.block_builder.emit(relax.op.reshape(bias, (1, -1, *[1] * axes)))
            made = self.block_builder.emit(relax.op.add(made, of_type(self.block_builder, along, wide)))
        return of_type(self.block_builder, made, dtype)

    def _grid_sampler_2d(self, node: Any) -> Any:
        """Places lie along the last axis; TVM takes them along the second, and gives float32 whatever the type is."""
        data, grid = (self.env[one] for one in node.args[:2])
        dtype = str(data.ty.dtype)
        if dtype != "float64":
            data, grid = (of_type(self.block_builder, one, "float32") for one in (data, grid))
        grid = self.block_builder.emit(relax.op.permute_dims(grid, [0, 3, 1, 2]))
        made = super()._grid_sampler_2d(SimpleNamespace(args=(data, grid, *node.args[2:])))
        return of_type(self.block_builder, made, dtype)

    def _upsample_nearest2d(self, node: Any) -> Any:
        """The elements at or before the places; TVM takes those in the middle, and no scale as it is given."""
        data, size, scales = [*self.retrieve_args(node), None][:3]
        return nearest(self.block_builder, data, size, scales)

    def _upsample_impl(self, x: Any, size: Any, scale_factor: Any, method: str, align_corners: bool) -> Any:
        resize, size = super()._upsample_impl, self._retrieve_args(size)  # TVM leaves sizes as torch's nodes
        if str(x.ty.dtype) == "uint8" and method == "linear":
            return bytes_resized(self.block_builder, x, size, scale_factor, align_corners)
        if size or align_corners:
            return resize(x, size, scale_factor, method, align_corners)
        return by_scale(self.block_builder, x, scale_factor, lambda *one: resize(one[0], None, one[1], method, False))
