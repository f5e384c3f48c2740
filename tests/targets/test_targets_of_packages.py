"""Targets of other packages: what is wrong with one is told by its kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import tvm
from programs import constant, program
from tvm import relax

import eqsat_layout
from eqsat_layout.errors import CandidateError, CostError, TargetError
from eqsat_layout.maps import GLOBAL, Memory
from eqsat_layout.notes import Notes
from eqsat_layout.targets.checked import factory_of
from eqsat_layout.targets.lowering import lower
from eqsat_layout.targets.protocol import Target
from eqsat_layout.targets.registry import GROUP, register, target, unregister

KIND = "planned"


class Planned(Target):
    kind = KIND


class WithoutKind(Target):
    """It was forgotten."""


@pytest.fixture
def own() -> Iterator[Callable[..., Target]]:
    """``own(**members)``: a registered target with these members."""

    def make(**members: Any) -> Target:
        made = type("Own", (Planned,), members)
        register(KIND, lambda given, approx: made(tvm.target.Target("llvm"), approx=approx))
        return target(KIND)

    yield make
    unregister(KIND)


def make_planned(given: Any, approx: bool) -> Target:
    return Planned(tvm.target.Target("llvm"), approx=approx)


def make_nothing(given: Any, approx: bool) -> None:
    """It gives none."""


def without_driver(given: Any, approx: bool) -> Target:
    raise RuntimeError("no driver")


def convolution() -> Any:
    return program(lambda b, x: b.emit(relax.op.nn.conv2d(x, constant(8, 8, 3, 3), padding=1)), (1, 8, 5, 5))


def test_a_package_names_its_factory() -> None:
    assert factory_of(EntryPoint(KIND, f"{__name__}:make_planned", GROUP))(KIND, False).approx is False


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no_such_package:make", "No module named 'no_such_package'"),
        (f"{__name__}:no_such_function", "no attribute 'no_such_function'"),
        (f"{__name__}:make_nothing", "its factory gave None"),
        (f"{__name__}:without_driver", "can't be made: RuntimeError: no driver"),
    ],
)
def test_a_package_that_makes_no_target_is_named(value: str, said: str) -> None:
    with pytest.raises(TargetError, match=said) as caught:
        factory_of(EntryPoint(KIND, value, GROUP))(KIND, True)
    assert f"target {KIND!r}" in str(caught.value)


def test_a_target_says_its_kind() -> None:
    register(KIND, lambda given, approx: WithoutKind(tvm.target.Target("llvm")))
    try:
        with pytest.raises(TargetError, match="WithoutKind does not say its kind"):
            target(KIND)
    finally:
        unregister(KIND)


@pytest.mark.parametrize("memories", [None, {}, {GLOBAL: Memory(), "texture": Memory("other")}])
def test_memories_that_are_none_are_told(own: Callable[..., Target], memories: Any) -> None:
    with pytest.raises(TargetError, match=r"target 'planned': Own.memories"):
        own(memories=memories)


@pytest.mark.parametrize(
    ("members", "error", "said"),
    [
        ({"candidates": lambda *_: None}, CandidateError, "Own.candidates for relax.nn.conv2d .* got None"),
        ({"candidates": lambda *_: ["NCHW4c"]}, CandidateError, "must be of type Candidate, got 'NCHW4c'"),
        ({"algorithms": lambda *_: ["im2col"]}, CandidateError, "Own.algorithms must be of type Algorithm"),
        ({"roofline": lambda *_: None}, CostError, "target 'planned': roofline must give a Roofline, got None"),
        ({"fusion": lambda *_: None}, TargetError, "target 'planned': fusion must give a Fusion, got None"),
        ({"costs": lambda *_: None}, CostError, "costs of target 'planned' must have the methods run and convert"),
    ],
)
def test_answers_of_the_wrong_kind_are_told(
    own: Callable[..., Target], members: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        eqsat_layout.plan(convolution(), own(**members))


def test_join_gives_a_module(own: Callable[..., Target]) -> None:
    with pytest.raises(TargetError, match=r"join must give a tvm\.IRModule, got None"):
        lower(convolution(), own(join=lambda *_: None))


def test_schedule_gives_a_module(own: Callable[..., Target]) -> None:
    """It was said that TVM can't build the module."""
    with pytest.raises(TargetError, match=r"^target 'planned': schedule must give a tvm\.IRModule, got None"):
        lower(convolution(), own(schedule=lambda *_: None))


def test_a_fault_of_a_build_is_not_said_to_be_tvms(own: Callable[..., Target]) -> None:
    def build(self: Target, mod: Any, notes: Notes) -> Any:
        raise ValueError("a fault of its own")

    with pytest.raises(ValueError, match=r"^a fault of its own$"):
        lower(convolution(), own(build=build))


def test_kinds_that_build_by_the_same_tvm_target_are_measured_apart(own: Callable[..., Target]) -> None:
    assert own().name.startswith(f"{KIND} ")
