"""What one test file of TVM makes, in a process that may be lost.

``python -m bench.soundness.tvm_suite.collecting FILE FOLDER [text]``.

In: a test file in a checkout. Out: every Relax module that its tests write down, build or give to a pass, and every
function and call that they have outside of one, as JSON in ``FOLDER``, named after its structure; and a line in
``FOLDER/names.jsonl`` for each time it is met, and for what is left out: modules that can't be parsed or written down,
tests that are skipped. Tests run under pytest with hooks; nothing is built. What they don't reach, for want of a
framework, is parsed from the text; ``text``: all is, and no test runs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import tvm
import tvm_ffi
from tvm import relax

from bench.soundness.tvm_suite.calls import program_of
from bench.soundness.tvm_suite.written import Unparsed, written_modules
from eqsat_layout.notes import last_of

TESTS: Final = Path("tests") / "python"
NAMES: Final = "names.jsonl"
_LARGEST: Final = 32 << 20
"""Bytes of JSON; what is larger has weights that take minutes to run."""


class NothingIsBuiltHereError(Exception):
    """In place of a build, which takes most of a test's time."""


class Collector:
    """Keeps modules, each as it is when it is met."""

    def __init__(self, file: str, folder: Path):
        self._file, self._folder = file, folder
        self._written: set[str] = set()
        self.classes: set[str] = set()

    def keep(self, mod: Any, name: str) -> None:
        """``name``: of the class, or what the test does with it."""
        if not isinstance(mod, tvm.IRModule) or not any(isinstance(f, relax.Function) for f in mod.functions.values()):
            return
        test = _test()
        try:
            text = tvm.ir.save_json(mod)
        except Exception as error:  # on purpose: what can't be written down is no test of ours
            self.leave_out(name, test, f"it can't be written down: {last_of(error)}"[:200])
            return
        if len(text) > _LARGEST:
            self.leave_out(name, test, f"its JSON has more than {_LARGEST >> 20} MiB")
            return
        digest = f"{tvm_ffi.structural_hash(mod, map_free_vars=True) & (1 << 64) - 1:016x}"
        if digest not in self._written:
            (self._folder / f"{digest}.json").write_text(text)
            self._written.add(digest)
        self._note({"name": name, "test": test, "module": digest})

    def keep_call(self, call: Any, normalize: Callable[[Any], Any]) -> None:
        """As a program of its own."""
        try:
            mod = program_of(call, normalize)
        except Exception as error:  # on purpose: whatever TVM says of sizes that have got names
            self.leave_out("call", _test(), f"it is no program: {last_of(error)}"[:200])
            return
        self.keep(mod, "call")

    def leave_out(self, name: str, test: str, why: str) -> None:
        """``name``: as above; empty if all of the test is left out, and so is ``test`` if all of the file is."""
        self._note({"name": name, "test": test, "error": why})

    def pytest_runtest_logreport(self, report: Any) -> None:
        """pytest's hook."""
        if report.skipped:
            self.leave_out("", report.nodeid.partition("::")[2], _reason(report))

    def pytest_collectreport(self, report: Any) -> None:
        """pytest's hook."""
        if report.skipped:
            self.leave_out("", "", _reason(report))
        elif report.failed:
            self.leave_out(
                "", "", f"its tests can't be collected: {str(report.longrepr).splitlines()[-1].lstrip('E ')}"
            )

    def _note(self, entry: dict[str, str]) -> None:
        with (self._folder / NAMES).open("a") as names:
            names.write(json.dumps({"file": self._file, **entry}) + "\n")


def _test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[2].rpartition(" ")[0]


def _reason(report: Any) -> str:
    """Of a skip, which pytest says by place and text."""
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr).removeprefix("Skipped: ")


def collect(path: Path, folder: Path, *, runs: bool = True) -> None:
    """See above."""
    file = path.resolve().as_posix().rpartition(f"/{TESTS.as_posix()}/")[2]
    collector = Collector(file, folder)
    if runs:
        _run(path, collector)
    for scope, name, mod in written_modules(path):
        if f"{scope}::{name}" not in collector.classes:
            if isinstance(mod, Unparsed):
                collector.leave_out(name, scope, f"it can't be parsed: {mod.why}")
                continue
            os.environ["PYTEST_CURRENT_TEST"] = f"::{scope} "
            collector.keep(mod, name)


def _run(path: Path, collector: Collector) -> None:
    _hook(collector)
    tvm.ir.__getattr__ = _class_elsewhere
    import pytest

    pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line", str(path)], plugins=[collector])
    os.environ.pop("PYTEST_CURRENT_TEST", None)


def _class_elsewhere(name: str) -> Any:
    """One that ``tvm.ir`` has in another version than the one that is installed."""
    for path, module in list(sys.modules.items()):
        if path.startswith("tvm.") and isinstance(found := vars(module).get(name), type):
            return found
    raise AttributeError(name)


def _hook(collector: Collector) -> None:
    """Lets the collector see what is parsed, what builders give, and what passes and builds are given."""
    from tvm.ir import transform
    from tvm.script import relax as R
    from tvm.script.parser import ir as parser

    for decorator in (parser.ir_module, R.function):
        _around(sys.modules[decorator.__module__], "parse", partial(_parsed, collector))
    for method in ("get", "finalize"):
        _around(relax.BlockBuilder, method, lambda real, *a, **k: _kept(collector, real(*a, **k), "builder"))
    _around(relax.BlockBuilder, "normalize", partial(_typed, collector))
    _around(transform.Pass, "__call__", partial(_passed, collector))
    for owner, name in ((tvm, "compile"), (relax, "build"), (tvm.tirx, "build"), (relax.vm_build, "build")):
        _around(owner, name, partial(_built, collector))


def _around(owner: Any, name: str, hook: Callable[..., Any]) -> None:
    real = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: hook(real, *args, **kwargs))


def _kept(collector: Collector, mod: Any, name: str) -> Any:
    collector.keep(mod, name)
    return mod


def _parsed(collector: Collector, real: Callable[..., Any], program: Any, *args: Any, **kwargs: Any) -> Any:
    parsed = real(program, *args, **kwargs)
    qualified = str(getattr(program, "__qualname__", "")).split(".")
    scope = ".".join(part for part in qualified[:-1] if part != "<locals>")
    collector.classes.add(f"{scope}::{qualified[-1]}")
    mod = tvm.IRModule.from_expr(parsed) if isinstance(parsed, relax.Function) else parsed
    collector.keep(mod, qualified[-1] or "text")
    return parsed


def _typed(collector: Collector, real: Callable[..., Any], own: Any, expr: Any) -> Any:
    typed = real(own, expr)
    if isinstance(typed, tvm.ir.Call) and isinstance(typed.op, tvm.ir.Op):
        collector.keep_call(typed, partial(real, own))
    return typed


def _passed(collector: Collector, real: Callable[..., Any], own: Any, mod: Any, *args: Any) -> Any:
    collector.keep(mod, f"given to {own.info.name}")
    return real(own, mod, *args)


def _built(collector: Collector, _real: Callable[..., Any], mod: Any, *_args: Any, **_kwargs: Any) -> Any:
    collector.keep(mod, "built")
    raise NothingIsBuiltHereError


if __name__ == "__main__":
    collect(Path(sys.argv[1]), Path(sys.argv[2]), runs="text" not in sys.argv[3:])
    os._exit(0)  # Python functions that a test leaves in TVM's registry are freed after Python, and end the process
