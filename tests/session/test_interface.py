"""What a program says of itself: read, or refused by one kind of error."""

from __future__ import annotations

import json

import pytest

from eqsat_layout.session.interface import Interface, TensorSpec

SPEC = TensorSpec("x", (1, "n"), "float32")
TEXT = Interface("main", (SPEC,), (), branches=False).to_json()


def test_it_is_read_again() -> None:
    assert Interface.from_json(TEXT).inputs == (SPEC,)


@pytest.mark.parametrize("text", ["", "[" * 5000, "[]", "3", "{}", json.dumps({**json.loads(TEXT), "inputs": [3]})])
def test_what_is_none_is_a_value_error(text: str) -> None:
    """Found by damaging files: a deep list was a RecursionError."""
    with pytest.raises(ValueError, match=r"."):
        Interface.from_json(text)
