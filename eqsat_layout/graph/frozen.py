"""Frozen layouts: what the user's annotations say an op must read and write.

In: the ``eqsat_layout.frozen`` attribute of a PrimFunc (True: its buffers stay as they are) or of a Relax function
(a dictionary from binding name or op name to layout names, operands first, then the result), or the same dictionary as
``desired_layouts``. Out: formats per call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_layout.errors import LayoutError
from eqsat_layout.graph.graph import Frozen, TensorType
from eqsat_layout.maps import Extent, Format, index_map_from_names, parse_layout_name

FROZEN_ATTRIBUTE = "eqsat_layout.frozen"

_OPERAND_LAYOUTS = ("data_layout", "kernel_layout")
_SINGLE_LAYOUT = "layout"


class FrozenLayouts:
    """The annotations that hold in one function.

    An entry for a binding must be met, or :class:`LayoutError` names the binding. An entry for an op name is met as far
    as it can be: blocks that don't divide a tensor's extents are left out, and a note says so.
    """

    def __init__(self, function: str, entries: Mapping[str, Sequence[str]], notes: list[str]):
        self._function, self._entries, self._notes = function, entries, notes
        self._known: dict[Any, Frozen] = {}
        self._unused = {name for name in entries if not name.startswith("relax.")}

    @staticmethod
    def of_function(
        name: str, function: Any, desired_layouts: Mapping[str, Any] | None, notes: list[str]
    ) -> FrozenLayouts:
        """Reads the function's attribute; entries of the attribute win over ``desired_layouts``."""
        entries: dict[str, Sequence[str]] = {}
        attribute = function.attrs.get(FROZEN_ATTRIBUTE) if function.attrs is not None else None
        for source in (desired_layouts or {}, attribute or {}):
            if not hasattr(source, "items"):
                raise LayoutError(f"{name}: {FROZEN_ATTRIBUTE} must be a dictionary of layout names, got {source!r}")
            for key, layouts in source.items():
                if isinstance(layouts, str) or not all(isinstance(layout, str) for layout in layouts):
                    raise LayoutError(f"{name}: the layouts of {key!r} must be a list of layout names, got {layouts!r}")
                entries[str(key)] = tuple(str(layout) for layout in layouts)
        for layouts in entries.values():
            for layout in layouts:
                if layout != "default":
                    parse_layout_name(layout)
        return FrozenLayouts(name, entries, notes)

    def of_call(
        self, binding: str, call: Any, operands: Sequence[TensorType | None], results: Sequence[TensorType | None]
    ) -> Frozen | None:
        """The formats that ``call`` must have, or None if it is not frozen."""
        op_name = str(getattr(call.op, "name", ""))
        self._unused.discard(binding)
        layouts = self._entries.get(binding)
        must = layouts is not None
        layouts = layouts if must else self._entries.get(op_name)
        if layouts is None or len(results) != 1 or results[0] is None or any(t is None for t in operands):
            return None
        where = f"{self._function}: {op_name} bound to {binding!r}"
        names = _logical_layouts(call.attrs, len(operands), where)
        key = (must, tuple(names), layouts, tuple(operands), results[0])
        if key not in self._known:
            wanted = _per_tensor(layouts, names, where)
            tensors = zip(names, wanted, (*operands, results[0]), strict=True)
            formats = tuple(self._format(name, layout, ty, must, where) for name, layout, ty in tensors)
            self._known[key] = Frozen(formats[:-1], formats[-1:])
        return self._known[key]

    def _format(self, name: str, layout: str, ty: TensorType | None, must: bool, where: str) -> Format:
        """The format of a tensor whose axes are called ``name``, in layout ``layout``."""
        assert ty is not None
        if not name:
            return Format.row_major(ty.shape)
        fitting = _fitting_blocks(name, layout, ty.shape)
        if fitting != layout:
            message = f"{where}: layout {layout} does not divide a tensor of shape {ty.shape} in {name}"
            if must:
                raise LayoutError(message)
            self._notes.append(f"{message}; {fitting} is used")
        index_map = index_map_from_names(name, fitting, ty.shape)
        assert index_map is not None, "only blocks that divide are left"
        return Format.make(index_map)

    def check_all_used(self) -> None:
        """A binding that is frozen by name has to exist."""
        if self._unused:
            self._notes.append(f"{self._function}: no binding named {', '.join(sorted(self._unused))} to freeze")


def _fitting_blocks(source: str, layout: str, shape: Sequence[Extent]) -> str:
    """``layout`` without the blocks of axes whose extent they don't divide."""
    axes = [axis for axis, _ in parse_layout_name(source)]
    tokens = parse_layout_name(layout)
    total: dict[str, int] = {}
    for axis, block in tokens:
        total[axis] = total.get(axis, 1) * (block or 1)
    kept = []
    for axis, block in tokens:
        extent = shape[axes.index(axis)] if axis in axes and len(axes) == len(shape) else 1
        if not block:
            kept.append(axis)
        elif isinstance(extent, int) and extent % total[axis] == 0:
            kept.append(f"{block}{axis.lower()}")
    return "".join(kept)


def _logical_layouts(attrs: Any, operands: int, where: str) -> list[str]:
    """What the op's own attributes call the axes of its operands and of its result; "" where they say nothing."""
    single = str(getattr(attrs, _SINGLE_LAYOUT, "") or "")
    names = [str(getattr(attrs, field, "") or "") for field in _OPERAND_LAYOUTS[:operands]]
    if not any(names):
        names = [single]
    if not names[0]:
        raise LayoutError(f"{where} has no layout attribute, so layout names don't say which axis is which")
    names += [""] * (operands - len(names))
    result = str(getattr(attrs, "out_layout", "") or "") or names[0]
    for name in (*names, result):
        if name and any(block for _, block in parse_layout_name(name)):
            raise LayoutError(f"{where} is in the blocked layout {name} already; freeze its PrimFunc instead")
    return [*names, result]


def _per_tensor(layouts: Sequence[str], names: Sequence[str], where: str) -> list[str]:
    """One layout per operand and result: operands in order, then the result, which follows the first by default."""
    count = len(names) - 1
    if len(layouts) > len(names):
        raise LayoutError(f"{where}: {len(layouts)} layouts given for {count} operands and a result")
    wanted = list(layouts[:count]) + ["default"] * (count - len(layouts))
    wanted.append(layouts[count] if len(layouts) > count else layouts[0])
    return [name if layout == "default" else layout for name, layout in zip(names, wanted, strict=True)]
