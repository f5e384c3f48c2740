"""One of ONNX's own test cases through a session: for ``bench.soundness.onnx_suite``, in a process of its own.

In: the name of a case, and whether operands that say sizes are given as constants. Out: an :class:`Outcome`.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader
from onnx.backend.test.case import node as node_cases

import eqsat_layout
from eqsat_layout.errors import EqsatError

FOLDERS: Final = ("pytorch-operator", "pytorch-converted")
"""Models that torch exported years ago, of opset 6 to 9, with weights and results."""

SIZES: Final = 64
"""Elements of the largest operand that counts as one that says sizes, axes, or numbers of a quantisation."""


@dataclass(frozen=True)
class Outcome:
    """``kind``: passed, wrong, crash, refused; ``text`` says how."""

    name: str
    kind: str
    text: str = ""


@dataclass(frozen=True)
class Case:
    model: Any
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float


@cache
def cases() -> dict[str, Case]:
    """By name; those of one node are made anew, since ONNX's wheels do not hold them."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = {c.name: Case(c.model, c.data_sets, c.rtol, c.atol) for c in node_cases.collect_testcases(None)}
        for folder in FOLDERS:
            for case in loader.load_model_tests(kind=folder):
                found[f"{folder}/{case.name}"] = _read(case)
    return found


def _read(case: Any) -> Case:
    from pathlib import Path

    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    data = []
    for one in sorted(folder.glob("test_data_set_*")):
        parts = [
            [onnx.load_tensor(one / f"{kind}_{i}.pb") for i in range(len(list(one.glob(f"{kind}_*.pb"))))]
            for kind in ("input", "output")
        ]
        data.append((parts[0], parts[1]))
    return Case(model, data, case.rtol, case.atol)


def outcome(name: str, constants: bool) -> Outcome:
    """What becomes of a case."""
    case = cases()[name]
    try:
        model, given = _with_constants(case) if constants else (case.model, [tuple(i) for i, _ in case.data])
        session = eqsat_layout.Session(model)
        for inputs, (_, wanted) in zip(given, case.data, strict=True):
            names = [spec.name for spec in session.inputs]
            got = session.run(None, dict(zip(names, map(_array, inputs), strict=True)))
            if said := _difference(got, list(map(_array, wanted)), case):
                return Outcome(name, "wrong", said)
    except EqsatError as error:
        return Outcome(name, "refused", str(error))
    except Exception:
        return Outcome(name, "crash", traceback.format_exc())
    return Outcome(name, "passed")


def _with_constants(case: Case) -> tuple[Any, list[Sequence[Any]]]:
    """The model as exporters write it: operands beside the first that are small and the same in all sets of data are
    constants."""
    model = type(case.model)()
    model.CopyFrom(case.model)
    held = {tensor.name for tensor in model.graph.initializer}
    inputs = [value.name for value in model.graph.input if value.name not in held]
    kept = []
    for at, name in enumerate(inputs):
        values = [_array(data[0][at]) for data in case.data]
        values = [np.asarray(value) if isinstance(value, np.generic) else value for value in values]
        is_small = isinstance(values[0], np.ndarray) and values[0].size <= SIZES and values[0].dtype != object
        is_data = at == 0 and (len(inputs) > 1 or getattr(values[0], "dtype", None) != np.int64)
        if is_data or not is_small or not all(np.array_equal(v, values[0]) for v in values):
            kept.append(at)
        else:
            model.graph.initializer.append(numpy_helper.from_array(values[0], name))
    own = [value for value in model.graph.input if value.name in {inputs[at] for at in kept}]
    del model.graph.input[:]
    model.graph.input.extend(own)
    return model, [tuple(data[0][at] for at in kept) for data in case.data]


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _difference(got: Sequence[Any], wanted: Sequence[Any], case: Case) -> str:
    """Nothing where they agree."""
    if len(got) != len(wanted):
        return f"{len(got)} results, wanted {len(wanted)}"
    for at, (one, other) in enumerate(zip(got, wanted, strict=True)):
        other = np.asarray(other)
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"result {at} is {one.dtype} {one.shape}, wanted {other.dtype} {other.shape}"
        try:
            rtol = max(case.rtol, {"float16": 1e-2, "bfloat16": 3e-2}.get(other.dtype.name, 0.0))
            np.testing.assert_allclose(_wide(one), _wide(other), rtol=rtol, atol=max(case.atol, 1e-5))
        except AssertionError as error:
            return f"result {at}: " + " ".join(str(error).split())[:400]
    return ""


def _wide(array: Any) -> Any:
    return array.astype("float64") if array.dtype.kind not in "biu?" else array


def ops(names: Iterable[str]) -> dict[str, str]:
    """The op that each case is about."""
    return {name: cases()[name].model.graph.node[-1].op_type for name in names}
