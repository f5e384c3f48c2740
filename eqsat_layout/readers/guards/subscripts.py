"""Subscripts of einsums: TVM ends the process at a letter of the result that no operand has.

In: the subscripts. Out: why they are none, in words; empty if they may be.
"""

from __future__ import annotations


def why_no_subscripts(subscripts: str) -> str:
    """See above."""
    left, _, result = subscripts.partition("->")
    unknown = [letter for letter in dict.fromkeys(result) if letter not in f"{left}. "]
    return f"no operand of the einsum {subscripts[:80]!r} has {unknown[0]!r}" if unknown else ""
