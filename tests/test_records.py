"""Records made here are dataclasses of the standard library to whoever uses them."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field
from functools import partial
from typing import Any

import pytest

from eqsat_layout import records


def classes(dataclass: Any) -> dict[str, Any]:
    """The same classes, made by either."""

    @dataclass(frozen=True)
    class Point:
        """A point."""

        x: int
        y: float = 1.0
        names: list[str] = field(default_factory=list, compare=False)
        note: str = field(default="", repr=False)
        count: int = field(init=False, default=3)

    @dataclass(frozen=True)
    class Nothing:
        """No fields."""

    @dataclass(frozen=True)
    class Deep(Point):
        """One more field."""

        z: int = 0

        def __post_init__(self) -> None:
            if self.z < 0:
                raise ValueError("below 0")

    @dataclass
    class Loose:
        """It changes."""

        x: Any
        seen: set[int] = field(default_factory=set, init=False)

    @dataclass(frozen=True, slots=True)
    class Narrow:
        """With slots."""

        x: int
        y: int = 2

    @dataclass(slots=True, eq=False)
    class Own:
        """Equal to itself only."""

        x: int

    @dataclass(frozen=True)
    class Hashed:
        """It says its hash."""

        x: int

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True, repr=False)
    class Silent:
        """It says what it is."""

        x: int

        def __repr__(self) -> str:
            return "silent"

    return {c.__name__: c for c in (Point, Nothing, Deep, Loose, Narrow, Own, Hashed, Silent)}


OWN, THEIRS = classes(records.dataclass), classes(dataclasses.dataclass)


def said(action: Any) -> Any:
    """What it gives, or the error that it raises."""
    try:
        return action()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", OWN)
def test_a_record_does_what_a_dataclass_does(name: str) -> None:
    def seen(cls: Any) -> list[Any]:
        made = [said(partial(cls, *given)) for given in ((), (1,), (1, 2), (1, 3), (1, 2, ["a"]), (1, 2, [], "", 5))]
        objects = [one for one in made if not isinstance(one, type)]
        fields = [(f.name, f.init, f.repr, f.compare) for f in dataclasses.fields(cls)]
        return [
            fields,
            cls.__match_args__,
            [repr(one).rpartition(">.")[2] for one in made],
            [one == other for one in objects for other in objects],
            [] if name == "Own" else [said(partial(hash, one)) for one in objects],
            [said(partial(setattr, copy.copy(one), "x", 4)) for one in objects],
            # the library's own frozen classes with slots raise TypeError here
            [said(partial(setattr, copy.copy(one), "other", 4)) for one in objects if hasattr(one, "__dict__")],
            [said(partial(delattr, copy.copy(one), "x")) for one in objects],
            [said(lambda one=one: repr(dataclasses.replace(one, x=9)).rpartition(">.")[2]) for one in made],
            [said(lambda one=one: dataclasses.asdict(one)) for one in made],
            [repr(copy.deepcopy(one)).rpartition(">.")[2] for one in objects],
            [hasattr(one, "__dict__") for one in objects],
            str(cls.__dataclass_params__),
        ]

    own, theirs = seen(OWN[name]), seen(THEIRS[name])
    assert own == theirs
    assert len(own[2]) == 6


def test_other_classes_are_never_equal_and_derived_ones_may_say_more() -> None:
    point, deep = OWN["Point"](1), OWN["Deep"](1)
    assert point != deep
    assert point == OWN["Point"](1, names=["other"])
    with pytest.raises(ValueError, match="below 0"):
        OWN["Deep"](1, z=-1)
    with pytest.raises(FrozenInstanceError, match="x"):
        point.x = 2  # what is frozen

    @dataclasses.dataclass(frozen=True)
    class Further(OWN["Point"]):  # type: ignore[name-defined,misc]
        """Made by the library."""

        w: int = 0

    assert Further(1, w=2).w == 2


@records.dataclass(frozen=True, slots=True)
class Kept:
    """For pickles, which need a name."""

    x: int
    y: str = "a"


def test_a_record_with_slots_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(3))) == Kept(3)


def test_a_cached_property_is_worked_out_once() -> None:
    class Asked:
        times = 0

        @records.cached_property
        def value(self) -> int:
            """What it is."""
            self.times += 1
            return 5

    asked = Asked()
    assert (asked.value, asked.value, asked.times) == (5, 5, 1)
    assert Asked.value.__doc__ == "What it is."
