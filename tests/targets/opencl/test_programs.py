"""A compiled program as data: kept, read again, refused where it is none; what a caller may do wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import program
from targets.device_cases import RECURRENCE, SIZE, conv, nn
from targets.opencl.running import check, compiled, context
from tvm.relax import op

from eqsat_layout.errors import EqsatError, InputError, TargetError
from eqsat_layout.targets.gpu.host.plan import HostPlan
from eqsat_layout.targets.gpu.host.plan_checks import check_plan
from eqsat_layout.targets.gpu.host.sizes import value_of
from eqsat_layout.targets.opencl.host.executable import OpenClProgram


@pytest.fixture(scope="module")
def made() -> OpenClProgram:
    return compiled(program(lambda b, x: conv(b, b.emit(nn.relu(conv(b, x))), 1), SIZE))


def test_a_program_is_kept_and_read_again(made: OpenClProgram, tmp_path: Path) -> None:
    made.save(tmp_path / "net.cl")
    again = OpenClProgram.load(tmp_path / "net.cl")
    assert (again.plan, again.sources) == (made.plan, made.sources)
    x = np.random.default_rng(0).standard_normal(SIZE).astype("float32")
    np.testing.assert_array_equal(again.on(context())(x), made.on(context())(x))


def test_the_host_plan_is_plain_data(made: OpenClProgram) -> None:
    text = json.dumps(made.plan.to_data())
    assert HostPlan.from_data(json.loads(text)) == made.plan


def test_every_kernel_that_is_launched_is_there_and_complete(made: OpenClProgram) -> None:
    launched = {launch.kernel for function in made.plan.functions for launch in function.launches}
    assert launched == set(made.sources)
    for name, source in made.sources.items():
        assert source.count("__kernel") == 1
        assert f"void {name}(" in source
        assert name in made.source


def test_images_are_declared_with_their_extents(made: OpenClProgram) -> None:
    sizes = [memory.image for memory in made.plan.memories if memory.image is not None]
    assert sizes
    for memory in made.plan.memories:
        if memory.image is not None:
            layers, height, width = memory.image
            assert layers * height * width * 16 == memory.bytes


def test_what_is_no_program_is_refused(made: OpenClProgram, tmp_path: Path) -> None:
    made.save(tmp_path / "net.cl")
    whole = (tmp_path / "net.cl").read_bytes()
    other = whole.replace(b"program for opencl", b"program for openGL")
    for broken in (b"", b"no program", whole[:100], whole[:-1000], other):
        with pytest.raises(EqsatError, match="no eqsat_layout program for opencl"):
            OpenClProgram.from_bytes(broken)


@pytest.mark.parametrize("number", [-1, 99, True, None, "0", 0.5])
def test_a_plan_with_a_number_of_nothing_is_none(made: OpenClProgram, number: Any) -> None:
    """Found by damaging files: an IndexError, or the last memory for -1."""
    data = made.plan.to_data()
    data["values"][0]["memory"] = number
    with pytest.raises(ValueError, match="there is no memory"):
        check_plan(HostPlan.from_data(json.loads(json.dumps(data))), made.sources)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("memories", 0, "bytes"), 4, "larger than its memory of 4 bytes"),
        (("memories", 0, "bytes"), 64.5, "64.5 is no size"),
        (("values", 0, "shape"), [-1, 4], "-1 is no size"),
        (("values", 0, "dtype"), "object", "no tensors of 'object'"),
        (("launches", 0, "groups"), ["n", 1, 1], "'n' is no size"),
        (("launches", 0, "groups"), [["pow", 9, 9], 1, 1], "is no size"),
        (("launches", 0, "groups"), [1 << 40, 1, 1], "2\\^31 groups or more"),
        (("launches", 0, "kernel"), "printf", "no kernel 'printf'"),
    ],
)
def test_a_plan_that_can_not_be_run_is_refused(made: OpenClProgram, place: Any, value: Any, says: str) -> None:
    """The device's library had other words for it, Python had, or PoCL ended the process."""
    data = json.loads(json.dumps(made.plan.to_data()))
    main = next(one for one in data["functions"] if one["name"] == "main")
    given = main["inputs"][0]
    tables = {
        "memories": data["memories"][data["values"][given]["memory"] :],
        "values": data["values"][given:],
        "launches": main["launches"],
    }
    table, number, key = place
    tables[table][number][key] = value
    with pytest.raises(ValueError, match=says):
        check_plan(HostPlan.from_data(data), made.sources)


def test_memory_that_a_device_does_not_have_is_an_error_of_ours(made: OpenClProgram) -> None:
    memories = tuple(replace(memory, bytes=1 << 60, image=None, constant=None) for memory in made.plan.memories)
    run = replace(made, plan=replace(made.plan, memories=memories)).on(context())
    with pytest.raises(TargetError, match="a buffer of 1152921504606846976 bytes is refused by the device"):
        run(np.zeros(SIZE, "float32"))


def test_a_wrong_input_is_named(made: OpenClProgram) -> None:
    run = made.on(context())
    with pytest.raises(InputError, match="takes 1 tensors, got 2"):
        run(np.zeros(SIZE, "float32"), np.zeros(SIZE, "float32"))
    with pytest.raises(InputError, match=r"'x0': expected float32 \(1, 32, 14, 14\), got float32 \(1, 32, 14, 15\)"):
        run(np.zeros((1, 32, 14, 15), "float32"))
    with pytest.raises(InputError, match="got float64"):
        run(np.zeros(SIZE))
    with pytest.raises(InputError, match="no function 'other'; there are main"):
        run(np.zeros(SIZE, "float32"), entry="other")


def test_a_program_is_run_again_and_again(made: OpenClProgram) -> None:
    run = made.on(context())
    a, b = (np.full(SIZE, value, "float32") for value in (1, 2))
    first = run(a)
    assert not np.array_equal(run(b), first)
    np.testing.assert_array_equal(run(a), first)


def test_a_known_program_comes_from_disk() -> None:
    """What was compiled before is the same program, and runs."""

    def body(builder: Any, x: Any) -> Any:
        return builder.emit(op.add(conv(builder, x, 7), x))

    first, again = (compiled(program(body, SIZE)) for _ in range(2))
    assert (first.plan, first.sources) == (again.plan, again.sources)
    x = np.ones(SIZE, "float32")
    np.testing.assert_array_equal(first.on(context())(x), again.on(context())(x))


@pytest.mark.parametrize(
    ("size", "value"),
    [(3, 3), ("n", 5), (["mul", "n", 4], 20), (["floordiv", ["add", "n", 3], 4], 2), (["max", "n", 9], 9)],
)
def test_sizes_are_data(size: Any, value: int) -> None:
    assert value_of(size, {"n": 5}) == value


def test_a_step_of_a_recurrence_is_launched_stage_by_stage() -> None:
    """All steps were done by one work item."""
    notes: list[str] = []
    check(RECURRENCE, notes=notes)
    assert not [note for note in notes if "work item" in note]
