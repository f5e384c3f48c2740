"""Names of sizes that TVM would take for formulas or numbers.

In: a model whose inputs have open sizes. Out: the same, or a copy in which those have plain names that TVM can't read:
it reads ``floor(n/2)`` from left to right, without parentheses, and wants to know ``n``; ``1_0`` is 10, and ``n m`` is
``nm``. For ONNX a name is a name, and equal ones are equal sizes; formulas over sizes that are there themselves,
such as ``2*n``, are read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, Final

_NOT_PLAIN: Final = re.compile(r"[-+*/\s]|^\d[\d_]*$")
_FORMULA: Final = re.compile(r"(\w+)( *(\*|//?|[-+]) *\w+){1,7}")
_PRODUCT_AFTER_SUM: Final = re.compile(r"[-+].*[*/]")
_ZERO: Final = re.compile(r"/ *0+\b")
_LONGEST: Final = 40


def with_plain_size_names(model: Any) -> Any:
    """``model`` itself where all names are plain."""
    texts = list(dict.fromkeys(dim.dim_param for dim in _dims(model) if dim.dim_param))
    plain = {text for text in texts if not _NOT_PLAIN.search(text)}
    taken, names = set(texts), dict[str, str]()
    for text in texts:
        if text not in plain and not _is_read(text, plain):
            stem = re.sub(r"\W+", "_", text)[:_LONGEST]
            stem = f"size_{stem}" if _NOT_PLAIN.search(stem) else stem
            names[text] = next(name for name in _numbered(stem) if name not in taken)
            taken.add(names[text])
    if not names:
        return model
    changed = type(model)()
    changed.CopyFrom(model)
    for dim in _dims(changed):
        if dim.dim_param in names:
            dim.dim_param = names[dim.dim_param]
    return changed


def _is_read(text: str, plain: set[str]) -> bool:
    """A short formula that says the same from left to right, of sizes that some axis has."""
    if not _FORMULA.fullmatch(text) or _PRODUCT_AFTER_SUM.search(text) or _ZERO.search(text):
        return False
    words = [word for word in re.findall(r"\w+", text) if not word.isdecimal()]
    return bool(words) and plain.issuperset(words)


def _numbered(stem: str) -> Iterator[str]:
    return itertools.chain([stem], (f"{stem}_{number}" for number in itertools.count(1)))


def _dims(model: Any) -> Iterator[Any]:
    return (dim for value in model.graph.input for dim in value.type.tensor_type.shape.dim)
