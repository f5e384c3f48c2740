"""What stages make is read at places of the type of its axes.

In: the body of an unscheduled PrimFunc. Out: the same with other places cast. In the place of a load TVM puts what made
the element, with the places of the load for axes, and refuses to compare a byte with an int64.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from eqsat_layout.tir.structural import is_one_of, items_of, nodes_of, structural_map


def with_fitting_places(body: Any) -> Any:
    """``body``, a block, itself where all fit."""
    made = items_of(body.block.alloc_buffers)

    def on_load(load: Any) -> Any:
        if not is_one_of(load.source, made):
            return load
        return tirx.BufferLoad(load.source, _fitting(load.source, items_of(load.indices)))

    def on_region(region: Any) -> Any:
        if not is_one_of(region.source, made):
            return region
        ranges = items_of(region.region)
        starts = _fitting(region.source, [one.min for one in ranges])
        own = [ir.Range.from_min_extent(start, one.extent) for start, one in zip(starts, ranges, strict=True)]
        return ir.TensorRegion(region.source, own, region.ty)

    loads = [load for load in nodes_of(body, ir.TensorLoad) if is_one_of(load.source, made)] if made else []
    if all(_dtype(place) == own for load in loads for place, own in _places(load.source, items_of(load.indices))):
        return body
    return structural_map(body, (ir.TensorLoad, on_load), (ir.TensorRegion, on_region))


def _fitting(source: Any, places: Any) -> list[Any]:
    return [place if _dtype(place) == own else tirx.Cast(own, place) for place, own in _places(source, places)]


def _places(source: Any, places: Any) -> list[tuple[Any, str]]:
    """Each with the type of its axis."""
    return [(place, _dtype(extent)) for place, extent in zip(places, source.ty.shape, strict=True)]


def _dtype(value: Any) -> str:
    return str(value.ty.dtype)
