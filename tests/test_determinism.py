"""The same input gives the same output, in another process with other hash seeds too."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent

SCRIPT = """
import hashlib, sys
sys.path[:0] = sys.argv[1:]
import eqsat_layout, test_proposal_examples as proposal
from bench.networks import generated
from programs import program
mods = {
    "residual": lambda: generated.residual(60, seed=3),
    "transformer": lambda: generated.transformer(40),
    "proposal": lambda: program(proposal.conv_bias_conv, (1, 8, 8, 8, 4)),
}
for name, make in mods.items():
    plan = eqsat_layout.plan(make())
    print("=====", name, plan.changed, hashlib.sha256(plan.module.script(show_meta=True).encode()).hexdigest())
    print(plan.module.script())
    print(plan)
    print(plan.cost, plan.input_cost, plan.lower_bound, plan.transforms, plan.notes)
"""


def outputs(seeds: tuple[str, ...]) -> list[str]:
    """What the script prints under each hash seed, the processes side by side."""
    folders = [str(HERE.parent), str(HERE)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *folders],
            env={**os.environ, "PYTHONHASHSEED": seed, "TVM_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in seeds
    ]
    results = [process.communicate(timeout=300) for process in running]
    assert all(process.returncode == 0 for process in running), results[0][1]
    return [out for out, _ in results]


def without_timings(text: str) -> str:
    return re.sub(r"\d[\d.,e-]* ?(s|ms|us|seconds)\b|[ ─━]+", " ", text)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return outputs(("0", "4242"))


def test_another_process_gives_the_same(texts: list[str]) -> None:
    first, *others = (without_timings(text) for text in texts)
    assert first.count("===== ") == 3
    assert first.count("True") >= 2
    for other in others:
        for a, b in zip(first.splitlines(), other.splitlines(), strict=True):
            assert a == b


def test_the_same_process_gives_the_same_again() -> None:
    import test_proposal_examples as proposal
    from programs import program

    import eqsat_layout

    layouts = {"conv_a": ["NHWC", "OHWI"], "conv_b": ["NCHW16c", "OIHW16o16i"]}
    mod = program(proposal.residual, (1, 32, 8, 8), frozen=layouts)
    first, second = (eqsat_layout.optimize(mod).script(show_meta=True) for _ in range(2))
    assert first == second
