"""Functions and orders of torch that no other frontend takes, beside torch itself; each test is one program."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from readers.torch.function_module import FunctionModule

import eqsat_layout
from eqsat_layout.errors import EqsatError
from eqsat_layout.sources.source import source_of

torch = pytest.importorskip("torch")
torch.manual_seed(0)


def both(function: Callable[..., Any], *given: Any) -> list[tuple[Any, Any]]:
    """What a session gives of it, and what torch does."""
    session = eqsat_layout.Session(torch.export.export(FunctionModule(function), given))
    feed = dict(zip([spec.name for spec in session.inputs], given, strict=True))
    wanted = [one.float() if one.dtype == torch.bfloat16 else one for one in function(*given)]
    made = [one.astype("float32") if one.dtype.name == "bfloat16" else one for one in session.run(None, feed)]
    return list(zip(made, [one.numpy() for one in wanted], strict=True))


def agree(pairs: list[tuple[Any, Any]], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    for made, wanted in pairs:
        assert made.dtype == wanted.dtype
        np.testing.assert_allclose(made, wanted, rtol=rtol, atol=atol)


WIDE = torch.tensor([-6.0, -1.5, -0.0, 0.0, 1e-6, 0.3, 0.499, 0.5, 1.0, 1.5, 2.0, 3.7, 5.0, 8.0, 9.1, 30.0])
STRANGE = torch.tensor([float("nan"), float("inf"), -float("inf")])


def test_small_values_of_erfc_keep_their_digits() -> None:
    """It was 1 - erf(x): 0 from 4 on."""
    x, y = torch.cat([WIDE, STRANGE]), torch.cat([WIDE, STRANGE]).double()
    single, double, half = both(lambda x, y: (torch.erfc(x), torch.erfc(y), torch.erfc(x.half())), x, y)
    np.testing.assert_allclose(*single, rtol=2e-6, atol=0)
    np.testing.assert_allclose(*double, rtol=1e-13, atol=0)
    np.testing.assert_allclose(*half, rtol=2e-3, atol=1e-7)


def test_functions_of_errors_and_of_gamma() -> None:
    """They were refused: "nothing here converts this op"."""
    x = torch.cat([WIDE, STRANGE, torch.tensor([-0.5, -1.0, -2.3, 100.0, 1e10])])
    inside = torch.tensor([-1.0, -0.999999, -0.5, -1e-7, 0.0, 0.1, 0.9, 0.9999, 1.0, 1.1, float("nan")])
    pairs = both(
        lambda x, y: (
            torch.erfinv(y),
            torch.erfinv(y.double()),
            torch.lgamma(x),
            torch.digamma(x),
            torch.special.erfcx(x),
            torch.lgamma(x.double()),
            torch.lgamma(torch.arange(1, 9)),
        ),
        x,
        inside,
    )
    agree(pairs, rtol=3e-6, atol=1e-7)
    agree([pairs[1], pairs[5]], rtol=1e-12, atol=1e-12)


def test_the_float_beside_one() -> None:
    x = torch.cat([WIDE, STRANGE])
    y = torch.tensor([0.0, -1.0]).repeat(10)[: len(x)]
    for made, wanted in both(lambda x, y: (torch.nextafter(x, y), torch.nextafter(y.double(), x.double())), x, y):
        np.testing.assert_array_equal(made, wanted)


def test_running_extremes_and_sums_of_exponentials() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0, float("nan"), 4.0, -1.0], [-90.0, -80.0, 90.0, 1.0, 1.0, -5.0, 95.0]])
    whole = torch.randint(-3, 4, (5, 3))
    pairs = both(
        lambda x, n: (
            *torch.cummax(x, 1),
            *torch.cummin(x, -1),
            *torch.cummax(n, 0),
            *torch.cummin(n > 0, 0),
            torch.logcumsumexp(x, 1),
            torch.logcumsumexp(torch.where(x > 2, x, -torch.inf), 1),
        ),
        x,
        whole,
    )
    agree(pairs, rtol=1e-6)


def test_medians_of_numbers_and_the_most_frequent() -> None:
    x = torch.tensor([[1.0, 3.0, 2.0, 2.0, float("nan"), 4.0], [5.0, 1.0, 1.0, float("nan"), 2.0, 2.0]])
    whole = torch.randint(0, 3, (4, 7))
    pairs = both(
        lambda x, n: (
            *torch.nanmedian(x, 1),
            torch.nanmedian(x),
            torch.nanmedian(n, 1)[0],
            *torch.nanmedian(torch.full_like(x, torch.nan), 0, keepdim=True),
            torch.mode(n, 1)[0],
            torch.mode(n, 0, keepdim=True)[0],
        ),
        x,
        whole,
    )
    agree(pairs)


def test_what_is_written_by_a_mask() -> None:
    """ "IndexPut requires each index tensor to have integer dtype": padding of wav2vec 2.0 is zeroed so."""

    def function(x: Any, rows: Any, mask: Any) -> Any:
        one, two, three = (x.clone() for _ in range(3))
        one[rows] = 0
        two[mask] = x[0, 0]
        three[:, rows[:3]] = torch.arange(4.0)[None, None]
        return one, two, three, x.masked_fill(mask[..., None], 2)

    x = torch.randn(5, 3, 4)
    agree(both(function, x, torch.tensor([True, False, True, True, False]), x[..., 0] > 0))


def test_windows_that_are_moved_and_boxes() -> None:
    try:
        vision = importlib.import_module("torchvision")
    except (ImportError, RuntimeError) as error:  # one for another torch lacks the ops of detectors
        pytest.skip(str(error))

    def function(x: Any, weight: Any, offset: Any, mask: Any, boxes: Any) -> Any:
        deform = vision.ops.deform_conv2d
        return (
            deform(x, offset, weight, padding=1, mask=mask),
            deform(x, offset[:, :, ::2, ::2], weight, torch.arange(6.0), stride=2, padding=1),
            vision.ops.roi_align(x, boxes, (2, 3), 0.5, 2, True),
            vision.ops.roi_align(x.mean(1, keepdim=True), boxes, 2, 1.0),
        )

    offset = 2 * torch.randn(2, 2 * 2 * 9, 6, 7)
    boxes = torch.tensor([[0.0, 1.0, 1.0, 8.0, 9.0], [1.0, 0.0, 2.0, 5.0, 5.0]])
    given = torch.randn(2, 4, 6, 7), torch.randn(6, 2, 3, 3), offset, torch.rand(2, 18, 6, 7), boxes
    agree(both(function, *given), rtol=1e-4, atol=1e-4)


def test_tensors_full_of_infinities() -> None:
    """``torch.full_like(x, -inf)`` could not be built: TVM's legalisation takes no infinity."""

    def function(x: Any) -> Any:
        return torch.full_like(x, torch.nan), torch.full((x.shape[0], 4), -torch.inf) + x, torch.full_like(x, torch.inf)

    dynamic = ({0: torch.export.Dim.AUTO},)
    session = eqsat_layout.Session(
        torch.export.export(FunctionModule(function), (torch.zeros(3, 4),), dynamic_shapes=(dynamic,))
    )
    x = torch.zeros(5, 4)
    agree(list(zip(session.run(None, {session.inputs[0].name: x}), [one.numpy() for one in function(x)], strict=True)))


def test_samples_of_volumes() -> None:
    """Spatial transformers of volumes (VoxelMorph) were refused."""
    sample = torch.nn.functional.grid_sample
    x, at = torch.randn(2, 2, 3, 4, 5), 1.3 * torch.rand(2, 2, 3, 2, 3) - 0.6
    pairs = both(
        lambda x, at: (
            sample(x, at, align_corners=False),
            sample(x, at, padding_mode="border", align_corners=True),
            sample(x, at, padding_mode="reflection", align_corners=False),
            sample(x, at, mode="nearest", align_corners=True),
        ),
        x,
        at,
    )
    agree(pairs, atol=1e-5)


def test_counting_back_gives_as_many_numbers_as_torch() -> None:
    """TVM counted two more (Funnel): "torch makes int64 (24,) of it, TVM's frontend R.Tensor((26,))". Of every other
    element of open sizes Relax said min(9223372036854775807, n) for n, and could not multiply the two."""

    def back(x: Any) -> Any:
        known = torch.arange(7, -6, -3) + torch.arange(5, 0, -1, dtype=torch.int32)
        return known + x[0], torch.arange(x.shape[0] - 1, -1, -2) * x[::2] + x[1::2].sum()

    x = torch.randn(5)
    auto = {0: torch.export.Dim.DYNAMIC}
    session = eqsat_layout.Session(torch.export.export(FunctionModule(back), (x,), dynamic_shapes=((auto,),)))
    for given in (x, torch.randn(8)):
        agree(
            list(
                zip(
                    session.run(None, {session.inputs[0].name: given}),
                    [one.numpy() for one in back(given)],
                    strict=True,
                )
            )
        )


def test_what_draws_numbers_in_training_only_and_rounded_quotients_of_two_types() -> None:
    """RReLU draws none after eval(); a rounded quotient of floats by whole numbers was refused."""
    x, y = torch.randn(3, 4), torch.randint(1, 5, (3, 4))
    agree(
        both(
            lambda x, y: (
                torch.nn.functional.rrelu(x),
                x // y,
                y // x,
                torch.div(y, 1.5, rounding_mode="trunc"),
                torch.linalg.det(x[:, :3]),
            ),
            x,
            y,
        )
    )


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.view_as_real(torch.view_as_complex(x.reshape(-1, 2)) * 1j), "view_as_complex.*: complex num"),
        (lambda x: torch.fft.rfft(x).abs(), r"fft_rfft.*: complex numbers are not done"),
        (lambda x: torch.linalg.inv(x), r"_linalg_check_errors.*: does more than to compute"),
        (lambda x: x[x > 0].sum(), "a result that is as large as the values of a mask say is not done"),
    ],
)
def test_what_is_refused_is_named(function: Callable[..., Any], reason: str) -> None:
    """torch's own words were said: "n=copy__1, n.args[0]=select_1, placeholders=", "Unsupported input kind: TOKEN"."""
    with pytest.raises(EqsatError, match=reason):
        source_of(torch.export.export(FunctionModule(function), (torch.eye(4),)))
