"""Loops of a file's kernels that a compiler is told to write out, iteration by iteration.

In: a module as a file gives it. Out: the same, in which kernels that this would make too long are loops as usual: a
line of text would take hours and all memory to build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import tvm
from tvm import s_tir, tirx

from eqsat_layout.tir.structural import changed_block, mapped_body, nodes_of, with_primfuncs

_LONGEST: Final = 1 << 14
"""Iterations of a nest that are written out."""
_PRAGMAS: Final = ("pragma_auto_unroll_max_step", "pragma_unroll_explicit")


def with_short_unrolls(mod: tvm.IRModule) -> tvm.IRModule:
    """See above; ``mod`` itself where there is nothing to change."""
    return with_primfuncs(mod, lambda _, function: _looped(function) if _is_long(function.body) else function)


def _is_long(body: Any) -> bool:
    told = [node.annotations for node in nodes_of(body, tirx.For, s_tir.SBlock)]
    told += [{node.attr_key: node.value} for node in nodes_of(body, tirx.AttrStmt)]
    if any(_number(annotations.get(_PRAGMAS[0])) > _LONGEST for annotations in told if annotations):
        return True
    copies: dict[Any, int] = {}
    for loop in nodes_of(body, tirx.For):  # the inner ones first
        if loop.kind == tirx.ForKind.UNROLLED:
            inner = [copies[one] for one in nodes_of(loop.body, tirx.For) if one in copies]
            copies[loop] = _number(loop.extent) * max(inner, default=1)
    return max(copies.values(), default=1) > _LONGEST


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | tirx.IntImm) else 1


def _looped(function: Any) -> Any:
    rules: list[tuple[Any, Callable[[Any], Any]]] = [
        (tirx.For, _loop),
        (s_tir.SBlock, _block),
        (tirx.AttrStmt, lambda node: node.body if node.attr_key in _PRAGMAS else node),
    ]
    return mapped_body(function, *rules)


def _loop(loop: Any) -> Any:
    kind = tirx.ForKind.SERIAL if loop.kind == tirx.ForKind.UNROLLED else loop.kind
    return tirx.For(
        loop.loop_var,
        loop.min,
        loop.extent,
        kind,
        loop.body,
        loop.thread_binding,
        _without_pragmas(loop.annotations),
        loop.step,
    )


def _block(block: Any) -> Any:
    return changed_block(block, annotations=_without_pragmas(block.annotations))


def _without_pragmas(annotations: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (annotations or {}).items() if key not in _PRAGMAS}
