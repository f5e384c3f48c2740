"""Remainders as arithmetic are those of libm, where quotients are below 2^29."""

from __future__ import annotations

import math

import numpy as np
import tvm
from tvm import te, tirx

from eqsat_layout.targets.cpu.machine import machine_of
from eqsat_layout.targets.cpu.schedule import schedule_primfunc
from eqsat_layout.targets.cpu.target import normalize_target

SPECIAL = [math.inf, -math.inf, math.nan, 0.0, 1.0, -1.0, 0.1, 0.3, 1e-3, 7.0, 2.0**24, 3e38, -1e-38]


def remainders(a, b, *, exact=False):
    x, y = (te.placeholder(a.shape, name=name) for name in "ab")
    rest = te.compute(a.shape, lambda *at: tirx.truncmod(x(*at), y(*at)), "rest")
    target = normalize_target(None, approx=not exact)
    func = schedule_primfunc(te.create_prim_func([x, y, rest]), machine_of(target))
    out = tvm.runtime.tensor(np.empty_like(a))
    built = tvm.compile(func, target=target)
    built["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    return func, out.numpy()


def test_remainders_are_those_of_libm():
    rng = np.random.default_rng(0)
    pairs = [(x, y) for x in SPECIAL for y in SPECIAL if not math.isfinite(x) or not y or abs(x / y) < 2**29]
    near = rng.integers(1, 2**20, 20_000).astype("float32")  # multiples of the divisor, and their neighbours
    b = np.concatenate([rng.standard_normal(20_000), rng.uniform(1e-3, 1, 20_000), [y for _, y in pairs]])
    b = b.astype("float32")
    a = np.concatenate([rng.standard_normal(20_000) * 1e6, near * b[20_000:40_000], [x for x, _ in pairs]])
    a = a.astype("float32")
    a[20_000:30_000] = np.nextafter(a[20_000:30_000], np.float32(0))
    few = (-len(a)) % 16
    a, b = np.pad(a, (0, few), constant_values=1), np.pad(b, (0, few), constant_values=1)
    func, got = remainders(a, b)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, np.fmod(a, b))
    assert "float64" in func.script(), "a call for each element takes fifty times as long"


def test_remainders_of_any_quotient_are_exact_where_that_is_asked_for():
    a, b = np.full(16, 3e38, "float32"), np.full(16, 0.7, "float32")
    func, got = remainders(a, b, exact=True)
    assert "float64" not in func.script()
    np.testing.assert_array_equal(got, np.fmod(a, b))
