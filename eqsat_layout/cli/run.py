"""The command ``run``: one run of a model.

In: a model, arrays in files or none. Out: a table of what came out, arrays in files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eqsat_layout.cli.common import check_outputs, refuse_overwriting
from eqsat_layout.cli.stages import Stages
from eqsat_layout.errors import EqsatError, InputError
from eqsat_layout.report.tables import FittedTable
from eqsat_layout.session.examples import random_feed
from eqsat_layout.session.feed import check_names
from eqsat_layout.session.interface import TensorSpec, type_text
from eqsat_layout.session.session import Session
from eqsat_layout.session.tensors import Array
from eqsat_layout.system.readable import check_size
from eqsat_layout.system.suffixes import COMPILED, ending_of, path_of
from eqsat_layout.system.whole_files import whole_file

Shapes = Mapping[str, Sequence[Any]] | None


def run_once(
    file: Path, inputs: Sequence[str], outputs: Sequence[str], shapes: Shapes, seed: int, console: Console
) -> None:
    """Runs ``file`` and prints; :class:`EqsatError` for files that can't be read and arrays that do not fit."""
    arrays = _checked_files(inputs, outputs)
    stages = Stages(console)
    is_compiled = ending_of(file) in COMPILED
    with stages("open" if is_compiled else "compile", file.name):
        session = Session(file) if is_compiled else Session(file, shapes=shapes)
    destinations = _by_name(outputs, session.outputs, "--output")
    sources = _by_name(inputs, session.inputs, "--input")
    for source in (file, *sources.values()):
        refuse_overwriting(source, list(destinations.values()))
    given = {name: arrays[path] if path in arrays else _loaded(path) for name, path in sources.items()}
    feed = given or random_feed(session.inputs, shapes, seed)
    with stages("run", "on what was given" if given else "on random inputs"):
        results = dict(zip((spec.name for spec in session.outputs), session.run(None, feed), strict=True))
    for name, path in destinations.items():
        _written(path, results[name])
    console.print()
    console.print(_results_table(results))


def ports_table(session: Session) -> Table:
    """Inputs and outputs, by name and type."""
    table = FittedTable(pad_edge=False)
    for heading in ("", "name", "type"):
        table.add_column(heading)
    for kind, specs in (("input", session.inputs), ("output", session.outputs)):
        for spec in specs:
            table.add_row(kind, Text(spec.name), Text(str(spec)))
    return table


def _by_name(options: Sequence[str], specs: Sequence[TensorSpec], option: str) -> dict[str, Path]:
    """``x=file`` by the name in front; a file alone is for the only one."""
    names = [spec.name for spec in specs]
    found: dict[str, Path] = {}
    for text in options:
        name = next((own for own in names if text.startswith(f"{own}=")), None)
        asked = text.partition("=")[0] if "=" in text and not os.path.exists(text) else ""
        if name is None and asked.isidentifier():
            check_names([asked], names, option.removeprefix("--"))
        if name is None and len(names) != 1:
            raise EqsatError(f"{option} {text!r}: say which, NAME=FILE; there are {', '.join(names)}")
        path = text if name is None else text[len(name) + 1 :]
        if (name or names[0]) in found:
            raise EqsatError(f"{option} {text!r}: {name or names[0]!r} is given twice")
        found[name or names[0]] = Path(path)
    return found


def _checked_files(inputs: Sequence[str], outputs: Sequence[str]) -> dict[Path, Array]:
    """The arrays, where it is clear in which files they are; what can be said of files is said before the model is
    compiled, which tells the names in front of them."""
    arrays: dict[Path, Array] = {}
    for option, texts in (("--input", inputs), ("--output", outputs)):
        for text in texts:
            if not _paths(text)[0]:
                raise EqsatError(f"{option} {text!r}: expected [NAME=]FILE")
    for text in inputs:
        found = [Path(path) for path in _paths(text) if os.path.exists(path)]
        if not found:
            raise EqsatError(f"{_paths(text)[0]}: No such file or directory")
        if len(found) == 1:
            arrays[found[0]] = _loaded(found[0])
    for text in outputs:
        places = [path_of(one) for one in _paths(text) if one != text or "=" not in text]
        if all(place.is_dir() or not place.absolute().parent.is_dir() for place in places):
            check_outputs(places)
    return arrays


def _paths(text: str) -> list[str]:
    """What may be the file of ``NAME=FILE`` or ``FILE``, whose names may hold such signs: the likely one first."""
    parts = text.split("=")
    return [text] if len(parts) == 1 else ["=".join(parts[at:]) for at in (*range(1, len(parts)), 0)]


def _loaded(path: Path) -> Array:
    try:
        if path.exists() and not path.is_file():
            raise OSError(0, "Is a directory" if path.is_dir() else "a pipe or a device")
        check_size(path)
        with path.open("rb") as file:  # np.load leaves the file of an archive open, and that of a torn one too
            array: Any = np.load(file, allow_pickle=False)
    except MemoryError as error:
        raise InputError(f"{path}: says that it is larger than memory") from error
    except (OSError, ValueError, TypeError, EOFError, TokenError, BadZipFile) as error:
        raise InputError(
            f"{path}: {getattr(error, 'strerror', None) or 'is no array as numpy.save writes it'}"
        ) from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path}: is an archive of arrays; give each input a file of its own, as numpy.save writes it")
    return array


def _written(path: Path, array: Array) -> None:
    try:
        with whole_file(path, is_text=False) as file:
            np.save(file, array, allow_pickle=False)
    except OSError as error:
        raise EqsatError(f"{path}: {error.strerror or error}") from error


def _results_table(results: Mapping[str, Array]) -> Table:
    table = FittedTable(pad_edge=False)
    for heading in ("output", "type", "least", "mean", "greatest"):
        table.add_column(heading, justify="left" if heading in ("output", "type") else "right")
    for name, array in results.items():
        figures = ["", "", ""]
        if array.size:
            wide = array.astype("float64")
            figures = [f"{value:.6g}" for value in (wide.min(), wide.mean(), wide.max())]
        table.add_row(Text(name), Text(type_text(array.shape, array.dtype.name)), *figures)
    return table
