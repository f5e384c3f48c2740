"""What is said of errors."""

from __future__ import annotations

import pytest

from eqsat_layout.notes import first_line, said_by

TRACEBACK = """Traceback (most recent call last):
  File "expr.cc", line 1, in IntImm
ValueError: literal 128 exceeds int8
"""
CONSTANT = """x has shape R.shape([2, n]), while metadata["ir.GenericConst"][0]
# Metadata omitted. Use show_meta=True in script() method to show it. has shape R.shape([4, 3]). \
T.int64(2) and T.int64(4) are not equal."""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "ValueError"),
        ("  ^~~~\nno such op\nat line 3", "ValueError: no such op"),
        ("The call is wrong:\n  a has 2 axes\nat line 3", "ValueError: The call is wrong: a has 2 axes"),
        (TRACEBACK, "ValueError: literal 128 exceeds int8"),
        (CONSTANT, "ValueError: x has shape [2, n], while a constant has shape [4, 3]. 2 and 4 are not equal."),
    ],
)
def test_an_error_in_one_line(text: str, said: str) -> None:
    """A kernel that a process of its own could not build "can't be built: Traceback (most recent call last):"."""
    assert first_line(ValueError(text)) == said


def test_a_key_that_is_missing_is_said_to_be_one() -> None:
    """A file of torch with a dtype that there is not was refused with "99999" and no more."""
    assert said_by(KeyError(99999)) == "KeyError: 99999"
    assert said_by(ValueError("no such op")) == "no such op"
