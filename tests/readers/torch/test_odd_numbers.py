"""Programs of torch whose numbers, or places, are odd: written views, lengths beyond squares, medians of NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from readers.torch.function_module import FunctionModule

import eqsat_layout
from eqsat_layout.errors import EqsatError

torch = pytest.importorskip("torch")
torch.manual_seed(0)
NAN, INF = math.nan, math.inf
ODD = torch.tensor([[NAN, 1, 2, 3, 4], [INF, NAN, INF, INF, 0], [3, 1, 2, 5, 4], [-INF, 0, NAN, NAN, 1]])
SIDES = (
    torch.tensor([NAN, INF, 0.0, 3.0, 1e30, -1e38, 1e-30, NAN]),
    torch.tensor([INF, 1, -0.0, -4, 1e30, 1e38, 1e-30, 1]),
)


def _windows_written(x: Any) -> Any:
    made = x.clone()
    made.unfold(1, 3, 3)[0].add_(1)
    made.unfold(0, 2, 2).select(-2, 1).mul_(3)
    return made


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "windows that are written to": (_windows_written, (torch.randn(4, 6),)),
    "lengths whose squares are infinite or 0": (
        lambda x, y: (torch.hypot(x, y), torch.hypot(x.double(), y.double())),
        SIDES,
    ),
    "medians of NaN and of infinities": (
        lambda x: (*x.median(1), x.median(), *x.nanmedian(1), x.nanmedian(), x[0, 0].median()),
        (ODD,),
    ),
    "medians of none, and of whole numbers": (
        lambda x, y: (x.median(), x.nanmedian(), y.median(), y.median(1)[0], y.median(0, keepdim=True)[0]),
        (torch.zeros(2, 0), torch.tensor([[3, 1, 2, 4], [9, -8, 7, 6]], dtype=torch.int8)),
    ),
    "exponential units of NaN": (
        lambda x: (torch.nn.functional.elu(x, 2.0), torch.selu(x), torch.celu(x, 0.5)),
        (ODD,),
    ),
    "those of narrow floats": (
        lambda x: (torch.nn.functional.elu(x), torch.nn.functional.elu(x.bfloat16()).float()),
        (torch.linspace(-1, 1, 24).half(),),
    ),
    "signs of bytes": (torch.sign, (torch.tensor([0, 3, 255], dtype=torch.uint8),)),
    "numbers that a type does not hold": (
        lambda x, y: (
            *(one(z) for z in (x, y) for one in (lambda a: a + 300, lambda a: a * -2, lambda a: 300 - a, torch.sign)),
            *(x == -1, x < 300, y > -200, x.masked_fill(x > 3, -1), torch.add(x, x, alpha=-2), x.sigmoid()),
            *(torch.full_like(x, -1), torch.full_like(y, -1, dtype=torch.uint8), x.clone().fill_(-2)),
            *(x.scatter(0, torch.tensor([1]), -1), x.new_full((2, 3), -1), torch.full((3,), -1, dtype=x.dtype) + x),
        ),
        (torch.tensor([0, 3, 255], dtype=torch.uint8), torch.tensor([-128, 3, 127], dtype=torch.int8)),
    ),
    "powers of whole numbers": (
        lambda x, y: (
            *(
                x**y,
                2**y,
                x ** y[:1],
                (x.int() ** y.int()).T,
                x**3,
                x**90,
                (x > 0) ** 3,
                ((x > 0) ** True).long(),
                (x**2)[0, 0] ** y[0, 0],
            ),
            x.to(torch.uint8) ** y.abs().to(torch.uint8),
        ),
        (
            torch.tensor([[2, 3, -3, 0, 1], [-1, -1, 7, 10**10, -(2**63)]]),
            torch.tensor([[63, 2**40 + 1, 41, 0, -3], [-3, -4, -1, 3, 1]]),
        ),
    ),
    "products with 0": (
        lambda x: (
            x * 0,
            0.0 * x,
            torch.add(x[0], x, alpha=0),
            torch.rsub(x, x[0], alpha=0),
            *(
                one(y, 0.0)
                for one in (torch.nn.functional.leaky_relu, torch.mul)
                for y in (x, x[0, 2], x.flatten()[-1])
            ),
            torch.sub(x[0, 0], x[0, 2], alpha=0),
        ),
        (ODD,),
    ),
    "a slope of -0": (
        lambda x: 1 / torch.nn.functional.leaky_relu(x, -0.0),
        (torch.tensor([-3.0, -0.0, 0.0, 2.0, INF, NAN, -INF]),),
    ),
    "numbers whose exponents move": (
        lambda x, y: (torch.ldexp(x, y), torch.ldexp(x.double() * 1.1, y * 4), torch.ldexp(y, y)),
        (torch.tensor([1.0, INF, NAN, -0.0, 1e-38, -0.0]), torch.tensor([3, -3, 4, 200, 250, -500])),
    ),
    "a number along an axis": (
        lambda x: (
            *(x.sum(0), x.mean(-1), x.softmax(0), x.cumsum(0), x.argmax(), x.argmin(0), x.prod(0), x.logsumexp(0)),
            *(
                *x.max(0),
                *x.topk(1),
                x.amax(0, keepdim=True),
                x.any(0),
                x.gather(0, torch.tensor(0)),
                x.permute(()) + 1,
            ),
        ),
        (torch.tensor(3.0),),
    ),
    "numbers that shrink": (torch.nn.functional.softshrink, (ODD,)),
    "scatters that reduce, and those of truth": (
        lambda x, i, y: (
            *(x.scatter(0, i, y, reduce=one) for one in ("add", "multiply")),
            *(x.scatter(1, i, 3.0, reduce="add"), (x > 0).scatter_add(0, i, y > 0)),
        ),
        (torch.randn(3, 4), torch.tensor([[0, 2, 1, 0], [0, 2, 0, 1]]), torch.randn(2, 4)),
    ),
    "largest ones of parts of volumes": (
        lambda x: torch.nn.functional.adaptive_max_pool3d(x, (2, 3, 4), return_indices=True),
        (torch.randn(1, 2, 5, 6, 4),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_they_are_those_of_torch(name: str) -> None:
    function, given = CASES[name]
    session = eqsat_layout.Session(torch.export.export(FunctionModule(function), given))
    results = session.run(None, dict(zip([one.name for one in session.inputs], given, strict=True)))
    for got, wanted in zip(results, torch.utils._pytree.tree_leaves(function(*given)), strict=True):
        assert (str(got.dtype), got.shape) == (str(wanted.dtype).removeprefix("torch."), tuple(wanted.shape))
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-6)


def test_a_write_that_torch_loses_is_refused() -> None:
    """The last column, which is in no window, was 0: torch takes the write for a gradient."""
    program = torch.export.export(FunctionModule(_windows_written), (torch.randn(4, 7),))
    with pytest.raises(EqsatError, match=r"windows of 3 that move by 3 along 7 elements \(unfold\)"):
        eqsat_layout.plan(program)
