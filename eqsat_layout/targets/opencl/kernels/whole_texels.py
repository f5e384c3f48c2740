"""Images that are written element by element, by kernels that were not understood: texel by texel instead.

In: launches that may store single elements into images. Out: the same, which store into buffers, and launches that copy
these into the images: who writes a part of a texel overwrites the rest of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from eqsat_layout.maps import GLOBAL
from eqsat_layout.targets.gpu.join import with_scopes
from eqsat_layout.targets.gpu.kernels.functions import with_work_items
from eqsat_layout.targets.gpu.kernels.vectors import is_image
from eqsat_layout.tir.structural import nodes_of, substitute


def with_whole_texels(func: Any) -> Any:
    """``func`` with a buffer for each image that it writes, and a copy of it at the end."""
    written = {store.buffer for store in nodes_of(func.body, tirx.BufferStore)}
    beside = {
        image: tirx.decl_buffer(image.ty.shape, image.ty.dtype, f"{image.name}_elements", layout=None)
        for image in func.params
        if image in written and is_image(image)
    }
    if not beside:
        return func
    copies = [_copied(buffer, image) for image, buffer in beside.items()]
    allocations = [tirx.AllocBuffer(buffer) for buffer in beside.values()]
    return func.with_body(tirx.SeqStmt([*allocations, substitute(func.body, beside), *copies]))


def _copied(buffer: Any, image: Any) -> Any:
    """The launch that copies one to the other."""
    source = te.placeholder(buffer.ty.shape, str(buffer.ty.dtype), buffer.name)

    def element(*indices: Sequence[Any]) -> Any:
        return source[indices]

    plain = te.create_prim_func([source, te.compute(buffer.ty.shape, element, image.name)])
    made = with_work_items(with_scopes(plain, [GLOBAL, str(image.ty.storage_scope)]))
    return substitute(made.body, dict(zip(made.params, (buffer, image), strict=True)))
