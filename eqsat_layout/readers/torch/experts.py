"""Mixtures of experts: how many rows go to each expert, and their products.

In: a builder, values of a node's arguments. Out: what the node gives, in Relax.
"""

from __future__ import annotations

from typing import Any, Final

from tvm import relax, te, tirx

from eqsat_layout.errors import EqsatError


def _histogram(b: relax.BlockBuilder, data: Any, bins: int = 100, low: float = 0, high: float = 0) -> Any:
    """A histogram of the numbers from ``low`` to ``high``, which belongs to the last bin."""
    if low >= high:
        raise EqsatError("a histogram between the least and the greatest of its numbers is not done")
    flat = b.emit(relax.op.reshape(data, [-1]))

    def counts(x: Any) -> Any:
        number = te.reduce_axis((0, x.shape[0]), "number")
        least, most, parts = (tirx.const(float(one), x.dtype) for one in (low, high, bins))

        def count(place: Any) -> Any:
            value = x(number.var)
            at = tirx.min(tirx.Cast("int64", (value - least) * parts / (most - least)), bins - 1)
            is_there = tirx.all(value >= least, value <= most, at == place)
            return te.sum(tirx.Select(is_there, tirx.const(1, x.dtype), tirx.const(0, x.dtype)), axis=number)

        return te.compute((bins,), count, "histogram")

    return b.emit_te(counts, flat, primfunc_name_hint="histogram")


def _grouped_product(b: relax.BlockBuilder, rows: Any, weights: Any, offs: Any = None, *rest: Any, **more: Any) -> Any:
    """Rows up to the first of ``offs`` times the first matrix, those up to the second times the second, and so on."""
    asked = [one for one in [*rest, *more.values()] if one is not None]
    if asked or offs is None or [len(one.ty.shape) for one in (rows, weights)] != [2, 3]:
        raise EqsatError("only rows in groups times as many matrices are done")

    def groups(ends: Any, x: Any) -> Any:
        group = te.reduce_axis((0, ends.shape[0]), "group")
        return te.compute(
            (x.shape[0],),
            lambda row: te.sum(tirx.Cast("int64", ends(group.var) <= tirx.Cast(ends.dtype, row)), axis=group),
            "groups",
        )

    def product(x: Any, w: Any, of: Any) -> Any:
        along = te.reduce_axis((0, x.shape[1]), "along")
        last = w.shape[0] - 1  # rows that are in no group may be anything

        def element(row: Any, column: Any) -> Any:
            return te.sum(x(row, along.var) * w(tirx.min(of(row), last), along.var, column), axis=along)

        return te.compute((x.shape[0], w.shape[2]), element, "grouped_product")

    of = b.emit_te(groups, offs, rows, primfunc_name_hint="groups")
    return b.emit_te(product, rows, weights, of, primfunc_name_hint="grouped_product")


MAKERS: Final = {
    "histc.default": _histogram,
    "_grouped_mm.default": _grouped_product,
    "grouped_mm_fallback.default": _grouped_product,  # of the package transformers
}
"""By the names of torch's ops."""
