"""The command line ``eqsat-layout``.

In: arguments. Out: reports on the console, optimised modules in files. Exit codes: 0 done, 1 the demo's numbers
disagree or a rule is wrong, 2 wrong arguments, a file that can't be read, or a refused module, 130 what was
interrupted. TVM is imported by the commands, not here, so that ``--help`` answers at once.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from eqsat_layout.cli import answers
from eqsat_layout.cli.common import (
    CLOSED,
    ApproxOption,
    AssumeOption,
    DebugOption,
    ObjectiveOption,
    PrecisionOption,
    RulesOption,
    ShapeOption,
    SourceArgument,
    TargetOption,
    drop_output,
    errors,
    make_console,
    parse_assumed,
    parse_layouts,
    parse_shapes,
    parse_target,
    refuse_overwriting,
    write_plan,
    write_text,
)
from eqsat_layout.errors import EqsatError
from eqsat_layout.system.sigterm import sigterm_exits

_SLOW_ELSEWHERE: Final = (
    "Build it with `eqsat-layout compile` or eqsat_layout.compile: tvm.compile has no schedules for this module "
    "(ResNet-50 takes 44 times as long when it builds it)"
)

app = typer.Typer(
    name="eqsat-layout",
    help="Optimise the layouts of TVM Relax programs with equality saturation.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.command(context_settings={"allow_extra_args": True})(answers.bench)  # several engines behind --against
for _command in (answers.plan, answers.compile, answers.run):
    app.command()(_command)


def main() -> None:
    """The console script, by that name in completion too, however it is started. SIGTERM leaves nothing behind, as
    Ctrl-C does not: constants that are computed lie in shared memory."""
    try:
        with sigterm_exits():
            app(prog_name=app.info.name)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Click's own code for it says that something is wrong
            sys.exit(CLOSED)
        raise
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        drop_output()
        print(f"eqsat-layout: can't write what there is to say: {error.strerror}", file=sys.stderr)
        sys.exit(2)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"eqsat-layout {version('eqsat-layout')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    layout: Annotated[
        str | None,
        typer.Option(help="Freeze the convolutions to this layout (NCHW16c) and show what happens to the transforms."),
    ] = None,
    image: Annotated[int, typer.Option(min=32, help="Height and width of the input.")] = 224,
    batch: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 1,
    repeat: Annotated[int, typer.Option(min=1, help="Timed runs of each build.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and input.")] = 0,
    width: Annotated[int, typer.Option(min=16, help="Channels of the stem; 64 is ResNet-50's own.")] = 64,
    target: TargetOption = None,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Build and run, or only plan.")] = True,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page that shows the program before and after.")
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Compile and run ResNet-50 (random weights, no download) beside stock TVM and runtimes that are installed."""
    console = make_console()
    with errors(debug):
        sizes: dict[str, Any] = {"image": image, "batch": batch, "repeat": repeat, "seed": seed, "width": width}
        from eqsat_layout.targets.registry import target as target_of

        sizes |= {"target": target_of(parse_target(target)), "run": run}
        if layout is None:
            from eqsat_layout.cli.demo import PlainDemoOptions, run_plain_demo

            agrees = run_plain_demo(PlainDemoOptions(**sizes, html=html), console)
        else:
            from eqsat_layout.cli.demo_layout import DemoOptions, run_demo

            agrees, plan = run_demo(DemoOptions(**sizes, layout=layout), console)
            if html:
                write_text(html, plan.html(f"ResNet-50, convolutions in {layout}"))
    if not agrees:
        raise typer.Exit(1)


@app.command()
def optimize(
    file: SourceArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to write: .py (Relax text) or .json. Default: FILE.optimized.*",
        ),
    ] = None,
    shape: ShapeOption = None,
    target: TargetOption = None,
    desired_layout: Annotated[
        list[str] | None,
        typer.Option(metavar="OP=LAYOUTS", help='Layouts of an op: "relax.nn.conv2d=NCHW16c,OIHW16i16o". Repeatable.'),
    ] = None,
    rules: RulesOption = None,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="Time limit of the extraction; the best plan so far is taken."),
    ] = None,
    validate: Annotated[
        bool, typer.Option("--validate", help="Run both modules on random inputs and compare.")
    ] = False,
    fallback: Annotated[
        bool, typer.Option("--fallback", help="As --validate; if they differ, write the input unchanged and say so.")
    ] = False,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan too: .json, or text under any other name.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page that shows the program before and after.")
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say why each transform stays and how each op came to its layouts.")
    ] = False,
    objective: ObjectiveOption = "time",
    approx: ApproxOption = True,
    precision: PrecisionOption = None,
    assume: AssumeOption = None,
    candidates: Annotated[
        bool,
        typer.Option(
            "--candidates/--as-written", help="Try other layouts and algorithms for convolutions and matrix products."
        ),
    ] = True,
    debug: DebugOption = False,
) -> None:
    """Optimise the module in FILE, write it for other passes of TVM, and print the plan. To run it, use `compile`."""
    console = make_console()
    with errors(debug):
        from eqsat_layout.cli.stages import Stages
        from eqsat_layout.readers.modules import check_module_path, default_output, write_module

        destination = output or default_output(file)
        check_module_path(destination)
        refuse_overwriting(file, [destination, *([plan] if plan else []), *([html] if html else [])])
        layouts, shapes = parse_layouts(desired_layout or []), parse_shapes(shape)
        assumed = parse_assumed(assume)
        from eqsat_layout.planning.source_module import as_module
        from eqsat_layout.targets.registry import target as target_of

        own = target_of(parse_target(target), approx=approx)
        stages = Stages(console)

        with stages("read", file.name):
            mod, _ = as_module(file, {"shapes": shapes, "precision": precision, "rules": rules})
        from eqsat_layout.planning.pipeline import plan as make_plan

        with stages("plan"):
            found = make_plan(
                mod,
                own,
                rules=[str(path) for path in rules] if rules else None,
                desired_layouts=layouts or None,
                time_limit=time_limit,
                validate=validate,
                fallback=fallback,
                candidates=candidates,
                approx=approx,
                objective=objective,
                assume=assumed,
            )
        with stages("write", str(destination)):
            write_module(found.module, destination)
            if plan:
                write_plan(found, plan)
            if html:
                write_text(html, found.html(file.name))
        console.print()
        console.print(found)
        console.print(_SLOW_ELSEWHERE, highlight=False)
        if explain:
            console.print()
            console.print(found.explain())


@app.command()
def calibrate(
    target: TargetOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer kernels and rounds: a few seconds.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="Directory of the database. Default: $EQSAT_LAYOUT_CACHE, or eqsat_layout in the user's caches.",
        ),
    ] = None,
    debug: DebugOption = False,
) -> None:
    """Measure memory bandwidth, arithmetic and the overhead of a call, and keep them for later plans."""
    console = make_console()
    with errors(debug):
        from eqsat_layout.cli.calibrate import run_calibrate

        run_calibrate(parse_target(target), quick, output, console)


@app.command()
def tune(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="What `optimize` takes. Default: the demo's ResNet-50.")
    ] = None,
    shape: ShapeOption = None,
    target: TargetOption = None,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="Start no new measurement after this time.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            "--database",
            metavar="DIR",
            help="Directory of the database. Default: $EQSAT_LAYOUT_CACHE, or eqsat_layout in the user's caches.",
        ),
    ] = None,
    tracker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Measure on a device behind this RPC tracker of TVM's.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Key of the device at the tracker.")] = None,
    approx: ApproxOption = True,
    precision: PrecisionOption = None,
    debug: DebugOption = False,
) -> None:
    """Measure the kernels that decide how MODEL is best compiled, and keep them for later plans.

    A run that was stopped is continued by the next one.
    """
    console = make_console()
    with errors(debug):
        if key is not None and tracker is None:
            raise EqsatError("--key is what an RPC tracker knows a device by: give --tracker HOST:PORT too")
        from eqsat_layout.cli.tune import TuneOptions, run_tune

        shapes = parse_shapes(shape)
        options = TuneOptions(model, parse_target(target), seconds, output, tracker, key, approx, shapes, precision)
        finished = run_tune(options, console)
    if not finished:
        raise typer.Exit(130)


@app.command()
def fuzz(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Rule files of yours. Default: those of the package.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0.0, help="Run for this long, instead of --cases.")] = None,
    cases: Annotated[int, typer.Option(min=1, help="Instances of every rule to try, at least.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same instances.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    prove: Annotated[bool, typer.Option("--prove/--no-prove", help="Also try to prove each rule, with z3.")] = True,
    debug: DebugOption = False,
) -> None:
    """Look for instances in which a rule is wrong. Exit code 1: there are some, or a rule could not be checked."""
    console = make_console()
    with errors(debug):
        from eqsat_layout.cli.fuzz import FuzzOptions, run_fuzz
        from eqsat_layout.soundness.rules.pace import AT_MOST
        from eqsat_layout.soundness.rules.reports import Effort

        effort = Effort(seconds=seconds, cases=cases, at_most=AT_MOST if files else None)
        sound = run_fuzz(FuzzOptions(files or [], effort, seed, jobs, prove), console)
    if not sound:
        raise typer.Exit(1)


@app.command()
def fuzz_programs(
    seconds: Annotated[float | None, typer.Option(min=0.0, help="Run for this long, instead of --cases.")] = None,
    cases: Annotated[int, typer.Option(min=1, help="Number of programs.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same programs.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    rules: RulesOption = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET", help="Compile for it too and run there: cuda (simulated), opencl, llvm, or JSON."
        ),
    ] = None,
    exact: Annotated[
        bool,
        typer.Option(
            "--exact", help="Compile for this CPU with approx=False; NaN and infinities are among the inputs."
        ),
    ] = False,
    guarded: Annotated[
        bool,
        typer.Option("--guarded", help="Compile for a CPU; each kernel is called by itself between protected pages."),
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Optimise random programs, run them before and after, and compare. Exit code 1: one went wrong."""
    console = make_console()
    with errors(debug):
        from eqsat_layout.cli.fuzz import run_fuzz_programs

        if exact and (target or rules):
            raise EqsatError("--exact is for this CPU and the package's own rules: without --target and --rules")
        most = None if seconds is not None else cases
        own = parse_target(target)
        right = run_fuzz_programs(seconds, most, seed, jobs, rules or [], console, own, exact, guarded)
    if not right:
        raise typer.Exit(1)


if __name__ == "__main__":
    main()
