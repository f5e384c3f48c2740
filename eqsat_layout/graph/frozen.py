"""Frozen layouts: what the user's annotations say an op must read and write.

In: the ``eqsat_layout.frozen`` attribute of a PrimFunc (True: its buffers stay as they are) or of a Relax function
(a dictionary from binding name or op name to layout names, operands first, then the result), or the same dictionary as
``desired_layouts``. Out: formats per call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eqsat_layout.errors import LayoutError
from eqsat_layout.graph.graph import Frozen, TensorType
from eqsat_layout.maps import (
    Extent,
    Format,
    Memory,
    index_map_from_names,
    layout_separators,
    parse_layout_name,
    split_scope,
)

FROZEN_ATTRIBUTE = "eqsat_layout.frozen"

_OPERAND_LAYOUTS = ("data_layout", "kernel_layout")
_SINGLE_LAYOUT = "layout"

LayoutCallback = Callable[[Any], Sequence[str] | Mapping[str, Sequence[str]] | None]
"""From a ``relax.Call`` to its layouts, or as TVM's ``layout_cb`` gives them, by op name; None or none: as it is."""

DesiredLayouts = Mapping[str, Sequence[str] | LayoutCallback] | LayoutCallback
"""By the name of an op or binding, layout names, operands first (``{"relax.nn.conv2d": ["NCHW16c", "OIHW16i16o"]}``),
or a callback; or one callback for all ops."""

_Entries = Mapping[str, tuple[str, ...] | LayoutCallback]
"""Layout names by the name of a binding or of an op."""


class FrozenLayouts:
    """The annotations that hold in one function.

    An entry for a binding must be met, or :class:`LayoutError` names the binding. An entry for an op name is met where
    it is sensible: blocks that would more than double an axis are left out, and a note says so. Axes that blocks don't
    divide are padded with 0. What is only desired is best effort: where it can't be had, a note says why.
    """

    def __init__(
        self,
        function: str,
        own: _Entries,
        desired: _Entries,
        notes: list[str],
        memories: Mapping[str, Memory] | None = None,
    ):
        self._function, self._entries, self._notes = function, {**desired, **own}, notes
        self._memories = memories or {}
        self._known: dict[Any, Frozen] = {}
        self._unused = {name for name in self._entries if not name.startswith("relax.") and name != _EVERY_OP}
        self._own = frozenset(own)

    @staticmethod
    def of_function(
        name: str,
        function: Any,
        desired_layouts: DesiredLayouts | None,
        notes: list[str],
        memories: Mapping[str, Memory] | None = None,
    ) -> FrozenLayouts:
        """Reads the function's attribute; entries of the attribute win over ``desired_layouts``.

        ``memories`` say how axes are grouped in the memory scopes that layouts name.
        """
        attribute = function.attrs.get(FROZEN_ATTRIBUTE) if function.attrs is not None else None
        own = {} if attribute is None else _entries(attribute, f"{name}: {FROZEN_ATTRIBUTE}")
        if callable(desired_layouts):
            desired_layouts = {_EVERY_OP: desired_layouts}
        desired = {} if desired_layouts is None else _entries(desired_layouts, f"{name}: desired_layouts")
        return FrozenLayouts(name, own, desired, notes, memories)

    def of_call(
        self, binding: str, call: Any, operands: Sequence[TensorType | None], results: Sequence[TensorType | None]
    ) -> Frozen | None:
        """The formats that ``call`` must have, or None if it is not frozen."""
        op_name = str(getattr(call.op, "name", ""))
        self._unused.discard(binding)
        name = next((name for name in (binding, op_name, _EVERY_OP) if name in self._entries), None)
        if name is None:
            return None
        where = f"{self._function}: {op_name} bound to {binding!r}"
        layouts = _resolved(self._entries[name], call, op_name, where)
        if layouts is None:
            return None
        must = name == binding
        try:
            if len(results) != 1 or results[0] is None or any(t is None for t in operands):
                raise LayoutError(
                    f"{where} can't be frozen: it has an operand or a result of unknown shape, or several"
                )
            return self.formats(call, layouts, operands, results, where, must, required=name in self._own)
        except LayoutError as error:
            if must or name in self._own:
                raise
            self._notes.append(f"{error}; it stays as it is")
            return None

    def formats(
        self,
        call: Any,
        layouts: Sequence[str],
        operands: Sequence[TensorType | None],
        results: Sequence[TensorType | None],
        where: str,
        must: bool,
        required: bool = True,
    ) -> Frozen:
        """``layouts`` as formats of the operands and the only result; :class:`LayoutError` where they don't fit."""
        names = _logical_layouts(call.attrs, len(operands), where)
        key = (must, required, tuple(names), tuple(layouts), tuple(operands), results[0])
        if key not in self._known:
            wanted = _per_tensor(layouts, names, where)
            tensors = zip(names, wanted, (*operands, results[0]), strict=True)
            formats = tuple(self._format(name, layout, ty, must, where) for name, layout, ty in tensors)
            self._known[key] = Frozen(formats[:-1], formats[-1:], required)
        return self._known[key]

    def _format(self, name: str, layout: str, ty: TensorType | None, must: bool, where: str) -> Format:
        """The format of a tensor whose axes are called ``name``, in layout ``layout``."""
        assert ty is not None
        if not name:
            return ty.row_major
        layout, scope = split_scope(layout)
        blocks = _blocks(name, layout, ty.shape, where)
        small = [axis for axis, block in blocks.items() if not must and _too_small(ty.shape[axis], block)]
        if small:
            layout = _without_blocks(name, layout, small)
            self._notes.append(f"{where}: a tensor of shape {ty.shape} is not given such blocks; {layout} is used")
        padding = [
            (0, -e % blocks[a]) if a in blocks and a not in small and isinstance(e, int) else (0, 0)
            for a, e in enumerate(ty.shape)
        ]
        padded = [e + hi if isinstance(e, int) else e for e, (_, hi) in zip(ty.shape, padding, strict=True)]
        index_map = index_map_from_names(name, layout, padded)
        if index_map is None:
            raise LayoutError(f"{where}: layout {layout} blocks a symbolic axis of a tensor of shape {ty.shape}")
        separators = layout_separators(layout)
        memory = self._memories.get(scope)
        if memory is not None and not separators:
            separators = memory.separators(index_map.result_shape) or ()
        return Format.make(index_map, padding=padding, fill=0.0, scope=scope, separators=separators)

    def check_all_used(self) -> None:
        """A binding that is frozen by name has to exist; one that is only desired may be in another function."""
        missing = ", ".join(map(repr, sorted(self._unused & self._own)))
        if missing:
            raise LayoutError(f"{self._function}: {FROZEN_ATTRIBUTE} names {missing}, but no dataflow block binds it")
        if self._unused:
            self._notes.append(f"{self._function}: no binding named {', '.join(sorted(self._unused))} to freeze")


def formats_of_layouts(
    call: Any,
    layouts: Sequence[str],
    operands: Sequence[TensorType | None],
    results: Sequence[TensorType | None],
    where: str,
) -> Frozen:
    """The formats that layout names say, operands first, for an op of one result; raises :class:`LayoutError`."""
    if len(results) != 1 or results[0] is None or any(t is None for t in operands):
        raise LayoutError(f"{where}: the op has an operand or a result of unknown shape, or several results")
    return FrozenLayouts("", {}, {}, []).formats(call, layouts, operands, results, where, True)


_EVERY_OP = "*"


def _resolved(entry: Any, call: Any, op_name: str, where: str) -> tuple[str, ...] | None:
    """The layouts of an entry for one call; a callback is asked."""
    if not callable(entry):
        return tuple(entry)
    try:
        found = entry(call)
    except LayoutError:
        raise
    except Exception as error:  # code of the user's
        raise LayoutError(f"{where}: the layout callback failed: {type(error).__name__}: {error}") from error
    if hasattr(found, "items"):
        found = found.get(op_name)
    return None if found is None else _checked(found, f"{where}: the layout callback")


def _entries(source: Any, where: str) -> dict[str, tuple[str, ...] | LayoutCallback]:
    """The annotations of ``source``, checked as far as they can be without the ops that they are for."""
    if not hasattr(source, "items"):
        raise LayoutError(f"{where} must be a dictionary of lists of layout names, got {source!r}")
    return {
        str(key): layouts if callable(layouts) else _checked(layouts, f"{where}: {str(key)!r}")
        for key, layouts in source.items()
    }


def _checked(layouts: Any, at: str) -> tuple[str, ...]:
    if isinstance(layouts, str) or not hasattr(layouts, "__iter__"):
        raise LayoutError(f"{at} must be a list of layout names, got {layouts!r}")
    names = list(layouts)
    if not all(isinstance(layout, str) for layout in names):
        raise LayoutError(f"{at} must be a list of layout names, got {names!r}")
    if not names:
        raise LayoutError(f"{at} gives no layouts")
    for layout in names:
        try:
            parse_layout_name(split_scope(layout)[0] if layout != "default" else "N")
        except LayoutError as error:
            raise LayoutError(f"{at}: {error}") from error
    return tuple(map(str, names))


def _blocks(source: str, layout: str, shape: Sequence[Extent], where: str) -> dict[int, int]:
    """The blocked axes of a tensor and how many elements their blocks hold together."""
    axes = [axis for axis, _ in parse_layout_name(source)]
    if len(axes) != len(shape) or {axis for axis, _ in parse_layout_name(layout)} != set(axes):
        raise LayoutError(f"{where}: layout {layout} does not fit a tensor of shape {tuple(shape)} in {source}")
    total: dict[int, int] = {}
    for axis, block in parse_layout_name(layout):
        if block:
            total[axes.index(axis)] = total.get(axes.index(axis), 1) * block
    return total


def _too_small(extent: Extent, block: int) -> bool:
    """Padding would more than double the axis, or can't be known."""
    return isinstance(extent, str) or 2 * extent <= block


def _without_blocks(source: str, layout: str, small: Sequence[int]) -> str:
    axes = [axis for axis, _ in parse_layout_name(source)]
    groups = [""]
    separators = layout_separators(layout)
    for position, (axis, block) in enumerate(parse_layout_name(layout)):
        groups += [""] if position in separators else []
        if not block or axes.index(axis) not in small:
            groups[-1] += f"{block}{axis.lower()}" if block else axis
    return "|".join(filter(None, groups))


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
