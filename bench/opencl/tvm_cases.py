"""The modules of TVM's own tests of its passes for Adreno, each as it is written there, by way of our planner.

In: a checkout of TVM. Out: a line for each test of ``test_texture_ops``, ``test_transform_annotate_custom_scope`` and
``test_transform_fold_vdevice_scope_change``: kernels that only copy, ours and as many as TVM's test expects at least
(each function that it names is called), and the greatest difference from the CPU, on PoCL. The exit code is 1 where
ours copies more or differs.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import tvm

import eqsat_layout
from bench.opencl.rows import Trial, copies_of

FOLDER: Final = "tests/python/relax/backend/adreno"
EXPECTING: Final = "test_transform_annotate_custom_scope"
WITHOUT: Final = ("test_texture_ops", "test_transform_fold_vdevice_scope_change")
COPY: Final = "te_layout_transform"
ENOUGH: Final = 1e-4


def cases(folder: Path) -> Iterator[tuple[str, Any, int]]:
    """Name, module, and how many copies TVM's result has; a test that has no list of them is that of another file by
    its name, or has as many as are in its expected module."""
    sys.path.insert(0, str(folder))
    expected: dict[str, int] = {}
    for file in (EXPECTING, *WITHOUT):
        tests, seen = importlib.import_module(file), list[tuple[Any, ...]]()
        tests.verify = tests.verify_results = lambda *given, seen=seen: seen.append(given)  # type: ignore[attr-defined]
        for test in (name for name in vars(tests) if name.startswith("test_")):
            seen.clear()
            getattr(tests, test)()
            (mod, result, *_), name = seen[0], test.removesuffix("_sub_indexed")
            if isinstance(result, dict):
                expected[name] = sum(one.startswith(COPY) for one in result)
            elif name not in expected:
                expected[name] = sum(var.name_hint.startswith(COPY) for var in result.get_global_vars())
            yield f"{file}::{test}", mod, expected[name]


def in_ordinary_memory(mod: Any) -> Any:
    """The same without devices on types, which the CPU has none of."""
    text = re.sub(r', vdevice="[^"]*"', "", mod.script(show_meta=True))
    plain = tvm.script.from_source(re.sub(r"R\.to_vdevice\((\w+), [^)]*\)", r"\1", text))
    return tvm.IRModule(dict(plain.functions_items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    worse = 0
    for name, mod, most in cases(parser.parse_args().checkout / FOLDER):
        trial = Trial(in_ordinary_memory(mod))
        made = eqsat_layout.compile(mod, {"kind": "opencl", "device": "adreno"})
        copies, error = sum(copies_of(made.plan).values()), trial.ran(made)["error"]
        is_worse = copies > most or not error < ENOUGH
        worse += is_worse
        print(f"{name:<100} {copies} of {most} copies, error {error:.1e}{'  WORSE' if is_worse else ''}", flush=True)
    return min(worse, 1)


if __name__ == "__main__":
    sys.exit(main())
