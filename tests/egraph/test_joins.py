"""egglog finds the matches that there are, and no others: rules that are right may else make programs wrong."""

from __future__ import annotations

import random
from importlib.metadata import version

import pytest
from egglog import bindings

DISTRIBUTES = """
(= s (Op p (Arg x (Arg y (End))))) (typed y t) (= right (Op p (Arg u (Arg v (End))))) (= left (Op k (Arg s (End))))
(= v (Op k (Arg y (End)))) (typed x t) (= u (Op k (Arg x (End))))
"""
"""What a rule such as k(x + y) = k(x) + k(y) looks for, which goes round in a circle."""
DECLARED = """
(sort Tensor) (sort Args) (constructor Op (String Args) Tensor) (constructor T (i64) Tensor) (constructor End () Args)
(constructor Arg (Tensor Args) Args) (relation typed (Tensor i64)) (ruleset q)
(relation found (String Tensor String Tensor Tensor i64 Tensor Tensor Tensor Tensor))
"""
TENSORS = 6


@pytest.mark.xfail(version("egglog") == "13.2.0", reason="its joins are wrong where a body goes round", strict=True)
def test_a_body_that_goes_round_matches_what_it_says() -> None:
    """egglog 13.2.0 said that 165 of 24 matches are such, and rules that are right made wrong programs."""
    for seed in range(20):
        rng = random.Random(seed)
        tensors = range(TENSORS)
        unary = {(k, x): rng.choice(tensors) for k in "fg" for x in tensors if rng.random() < 0.5}
        added = {(x, y): rng.choice(tensors) for x in tensors for y in tensors if rng.random() < 0.3}
        types = [rng.randrange(2) for _ in tensors]
        rows = [f'(union (T {y}) (Op "{k}" (Arg (T {x}) (End))))' for (k, x), y in unary.items()]
        rows += [f'(union (T {z}) (Op "+" (Arg (T {x}) (Arg (T {y}) (End)))))' for (x, y), z in added.items()]
        rows += [f"(typed (T {x}) {ty})" for x, ty in enumerate(types)]
        there_are = [
            (k, x, y)
            for k in "fg"
            for (x, y), s in added.items()
            if types[x] == types[y] and {(k, x), (k, y), (k, s)} <= unary.keys()
            if (unary[k, x], unary[k, y]) in added
        ]
        egraph = bindings.EGraph()
        rule = f"(rule ({DISTRIBUTES}) ((found k left p right s t u v x y)) :ruleset q) (run q 1) (print-size found)"
        *_, size = egraph.run_program(*egraph.parse_program(f"{DECLARED} {' '.join(rows)} {rule}"))
        assert int(str(size)) == len(there_are), seed
