"""The commands from a model to answers: ``plan``, ``compile``, ``run``, ``bench``.

In: a model's file, sizes, arrays in files. Out: a library, arrays, tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eqsat_layout.cli.common import (
    ApproxOption,
    AssumeOption,
    DebugOption,
    ObjectiveOption,
    PrecisionOption,
    RulesOption,
    ShapeOption,
    SourceArgument,
    TargetOption,
    errors,
    make_console,
    parse_assumed,
    parse_shapes,
    parse_target,
    refuse_overwriting,
    write_plan,
    write_text,
)
from eqsat_layout.errors import EqsatError
from eqsat_layout.system.suffixes import beside


def plan(
    file: SourceArgument,
    shape: ShapeOption = None,
    target: TargetOption = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the plan: .json, or text.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page that shows the program before and after.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say why each transform stays and how each op came to its layouts.")
    ] = False,
    rules: RulesOption = None,
    objective: ObjectiveOption = "time",
    approx: ApproxOption = True,
    precision: PrecisionOption = None,
    assume: AssumeOption = None,
    debug: DebugOption = False,
) -> None:
    """Print what would be chosen for the model in FILE, as it is compiled. No module is written."""
    console = make_console()
    with errors(debug):
        refuse_overwriting(file, [path for path in (output, html) if path])
        shapes, assumed = parse_shapes(shape), parse_assumed(assume)
        from eqsat_layout.cli.stages import Stages
        from eqsat_layout.planning.pipeline import plan as make_plan
        from eqsat_layout.planning.source_module import as_module
        from eqsat_layout.targets.lowering import prepared
        from eqsat_layout.targets.registry import target as target_of

        own = target_of(parse_target(target), approx=approx)
        stages = Stages(console)
        with stages("read", file.name):
            mod = prepared(as_module(file, {"shapes": shapes, "precision": precision, "rules": rules})[0], own)
        with stages("plan"):
            found = make_plan(mod, own, approx=approx, objective=objective, rules=rules, assume=assumed)
        if output:
            write_plan(found, output)
        if html:
            write_text(html, found.html(file.name))
        console.print()
        console.print(found)
        if explain:
            console.print()
            console.print(found.explain())


def compile(
    file: SourceArgument,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="The library. Default: FILE with .so.")
    ] = None,
    shape: ShapeOption = None,
    target: TargetOption = None,
    rules: RulesOption = None,
    objective: ObjectiveOption = "time",
    approx: ApproxOption = True,
    precision: PrecisionOption = None,
    assume: AssumeOption = None,
    debug: DebugOption = False,
) -> None:
    """Compile the model in FILE to a library, for `run`, `eqsat_layout.Session` and TVM's virtual machine.

    For a device it is a program, as data, for `run` and `eqsat_layout.Session`.
    """
    console = make_console()
    with errors(debug):
        from eqsat_layout.cli.stages import Stages

        shapes, assumed = parse_shapes(shape), parse_assumed(assume)
        from eqsat_layout.cli.run import ports_table
        from eqsat_layout.session.library import check_library_path
        from eqsat_layout.session.session import Session
        from eqsat_layout.system.suffixes import check_is_source
        from eqsat_layout.targets.registry import target as target_of

        check_is_source(file)
        own = target_of(parse_target(target), approx=approx)
        destination = output or beside(file, own.suffix)
        refuse_overwriting(file, [destination])
        check_library_path(destination, own.suffix)
        stages, notes = Stages(console), list[str]()
        with stages("compile", file.name):
            session = Session(
                file,
                target=own,
                shapes=shapes,
                assume=assumed,
                rules=rules,
                approx=approx,
                objective=objective,
                precision=precision,
                notes=notes,
            )
        with stages("write", str(destination)):
            session.save(destination)
        console.print()
        console.print(ports_table(session))
        for note in notes:
            console.print(f"Note  {note}", highlight=False, markup=False)


def run(
    file: Annotated[Path, typer.Argument(metavar="MODEL", help="A library of `compile` (its code runs), or a model.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="[NAME=]FILE.npy", help="An input; random ones if none is given. Repeatable."),
    ] = None,
    outputs: Annotated[
        list[str] | None,
        typer.Option("--output", metavar="[NAME=]FILE.npy", help="Where to write an output. Repeatable."),
    ] = None,
    shape: ShapeOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Of random inputs.")] = 0,
    debug: DebugOption = False,
) -> None:
    """Run a model once and say what came out."""
    console = make_console()
    with errors(debug):
        shapes = parse_shapes(shape)
        from eqsat_layout.cli.run import run_once

        run_once(file, inputs or [], outputs or [], shapes, seed, console)


def bench(
    context: typer.Context,
    file: SourceArgument,
    against: Annotated[
        list[str] | None,
        typer.Option(metavar="ENGINE...", help="onnxruntime, openvino (ONNX files), torch (.pt2). Default: all."),
    ] = None,
    shape: ShapeOption = None,
    precision: PrecisionOption = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often every engine has its turn.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Of random inputs.")] = 0,
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="Of every engine. Default: as many as each takes; ours one for each core."),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Time the model in FILE beside other engines, in turns, and compare the results."""
    console = make_console()
    with errors(debug):
        more = context.args  # what stands behind the first engine
        if more and not against:
            raise EqsatError(f"{more[0]!r}: engines come after --against")
        shapes = parse_shapes(shape)
        from eqsat_layout.cli.bench import BenchOptions, run_bench

        asked = (*(against or ()), *more)
        run_bench(BenchOptions(file, asked, shapes, rounds, seed, precision, threads or 0), console)
