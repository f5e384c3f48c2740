"""Programs of torch whose sizes are open: slices, borders, repeats and resizes by them, beside torch itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from readers.torch.function_module import FunctionModule
from tvm import sym, tirx

import eqsat_layout
from eqsat_layout.errors import EqsatError, InputError
from eqsat_layout.readers.modules import read_model
from eqsat_layout.readers.torch.programs import _from_dense, from_program
from eqsat_layout.readers.torch.slices import is_inside
from eqsat_layout.sources.ranges import ranges_of

torch = pytest.importorskip("torch")
F = torch.nn.functional
torch.manual_seed(0)
X, ROWS = torch.randn(5, 6), torch.randn(4, 6)


def _differences(x: Any) -> Any:
    """As the masks of Whisper: sizes ``min(1, n) + n``, of which slices are taken, then indexed."""
    starts = (torch.diff(x, dim=-1, prepend=x[:, :1] - 1) != 1).cumsum(-1)
    return starts[torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])[None]]


def test_slices_of_sums_of_sizes_keep_their_sizes() -> None:
    """Relax did not know ``max(min(1, n) + n - 1, 0)`` to be n: a difference had no shape (Whisper)."""
    auto = torch.export.Dim
    given = torch.randint(0, 3, (2, 7))
    program = torch.export.export(
        FunctionModule(_differences), (given,), dynamic_shapes=(({0: auto("b"), 1: auto("n")},),)
    )
    session = eqsat_layout.Session(program)
    for shape in ((2, 7), (1, 1), (3, 11), (2, 0)):
        x = torch.randint(0, 3, shape)
        np.testing.assert_array_equal(session.run(None, {session.inputs[0].name: x.numpy()})[0], _differences(x))


@pytest.mark.parametrize(
    "slices", [lambda x: x[1:] - x[:-1], lambda x: x[-3:-1] + x[:2], lambda x: torch.diff(x.T.contiguous()).T]
)
def test_slices_of_as_many_as_the_program_says_at_least_keep_their_sizes(slices: Any) -> None:
    """What two of them made together had no shape; those along an axis from the end could not be built."""
    program = torch.export.export(
        FunctionModule(slices), (torch.zeros(9, 2),), dynamic_shapes=(({0: torch.export.Dim.AUTO},),)
    )
    session = eqsat_layout.Session(program)
    for rows in (9, 4, 3):
        x = torch.randn(rows, 2)
        np.testing.assert_array_equal(session.run(None, {session.inputs[0].name: x.numpy()})[0], slices(x))
    with pytest.raises(eqsat_layout.EqsatError, match="input"):
        session.run(None, {session.inputs[0].name: np.zeros((0, 2), "float32")})


@pytest.mark.parametrize("rows", [8, 7])
def test_borders_are_as_wide_as_sizes_say(rows: int) -> None:
    """torch's definition of a pad took the amount of the example for that of all: of 8 rows, none."""

    def whole(x: Any) -> Any:
        return torch.nn.functional.pad(x, (1, -1, 0, -x.shape[0] % 4), value=2.0)

    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    session = eqsat_layout.Session(
        torch.export.export(FunctionModule(whole), (torch.zeros(rows, 3),), dynamic_shapes=(dynamic,))
    )
    for count in (8, 9, 6, 3):
        x = torch.randn(count, 3)
        np.testing.assert_array_equal(session.run(None, {session.inputs[0].name: x.numpy()})[0], whole(x))


@pytest.mark.parametrize(
    "scaled",
    [
        lambda x: x.sum(0) / x.shape[0],
        lambda x: x.bfloat16() * (x.shape[0] / 3) + x.shape[0] ** -0.5,
        lambda x: torch.arange(x.shape[0]) / x.shape[0] + x.long()[:, 0] * x.shape[0],
    ],
)
def test_sizes_are_floats_where_they_are_divided(scaled: Any) -> None:
    """A mean along a dynamic axis was refused: "nothing here converts" sym_float."""
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(FunctionModule(scaled), (torch.zeros(8, 3),), dynamic_shapes=(dynamic,))
    session = eqsat_layout.Session(program)
    for rows in (8, 5):
        x = torch.randn(rows, 3)
        made, expected = session.run(None, {session.inputs[0].name: x})[0], scaled(x)
        assert str(made.dtype) == str(expected.dtype).removeprefix("torch.")
        near = 2**-6 if expected.dtype == torch.bfloat16 else 1e-5  # a bfloat16 is rounded twice
        np.testing.assert_allclose(made.astype("float32"), expected.float(), rtol=near, atol=near)


def repeated_to_fours() -> tuple[Callable[..., Any], Any]:
    """A function, and its program of any width: of 8 columns none are repeated."""

    def function(x: Any) -> Any:
        return x.repeat(1, -x.shape[1] % 4)

    dynamic = ({1: torch.export.Dim.DYNAMIC},)
    return function, torch.export.export(FunctionModule(function), (torch.zeros(3, 8),), dynamic_shapes=(dynamic,))


def test_a_definition_that_holds_for_the_example_only_is_refused() -> None:
    """Of 8 columns none are repeated, and so none were of any other number."""
    _, program = repeated_to_fours()
    with pytest.raises(EqsatError, match=r"torch's definition of aten.repeat.default holds only where "):
        _from_dense(program, frozenset({torch.ops.aten.repeat.default}))


@pytest.mark.parametrize("width", [8, 7, 5, 1])
def test_repeats_by_sizes_hold_for_all_of_them(width: int) -> None:
    """Torch's definition is not asked any more: that holds for the example only."""
    function, program = repeated_to_fours()
    session, x = eqsat_layout.Session(program), torch.randn(3, width)
    (made,) = session.run(None, {session.inputs[0].name: x.numpy()})
    np.testing.assert_array_equal(made, function(x).numpy())


def test_slices_are_inside_only_where_all_sizes_say_so() -> None:
    """Nothing is checked when those that are run."""
    n, m = (tirx.Var(name, "int64") for name in "nm")
    one = tirx.IntImm("int64", 1)
    inside = [(tirx.Min(one, n) + n, 1, n + 1), (tirx.Min(one, n) + n, 0, n), (n + 2, 0, n + 1), (n + m, n, n + m)]
    outside = [(n, 0, 2), (n, 0, n - 1), (n, 0, -1), (n, -1, n), (n + 2, 1, n), (n, 0, m), (n, 1, n)]
    assert [is_inside(*slice_) for slice_ in inside] == [True] * len(inside)
    assert [is_inside(*slice_) for slice_ in outside] == [False] * len(outside)
    assert is_inside(n, 0, n - 1, {"n": (1, None)})
    assert not is_inside(n, 0, n - 2, {"n": (1, None)})


class Written(torch.nn.Module):  # type: ignore[misc]
    """Parts of a tensor that are written to."""

    def forward(self, x: Any) -> Any:
        y = x.clone()
        y[:, :2] *= 2
        y[..., :-1, :].add_(3)
        y[:, 1:3, 2] = 7
        y[:, :, 1:] += 1
        return y


def test_parts_of_any_size_are_written_to() -> None:
    """TVM legalises ``slice_scatter`` of numbers only: "Expect value to be constant int" ."""
    dims = {0: torch.export.Dim("b", min=2, max=64), 2: torch.export.Dim("h", min=4, max=64)}
    program = torch.export.export(Written(), (torch.randn(3, 5, 9, 6),), dynamic_shapes=(dims,))
    session = eqsat_layout.Session(program)
    for shape in ((2, 5, 4, 6), (4, 5, 7, 6)):
        x = torch.randn(*shape)
        (got,) = session.run(None, {session.inputs[0].name: x})
        np.testing.assert_array_equal(got, Written()(x).numpy())


class _LastOfEach(torch.nn.Module):  # type: ignore[misc]
    """As CLIP: rows by -1, positions of a table, and the element of each row where an index is the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(99, 8), torch.nn.Embedding(16, 8)
        self.register_buffer("at", torch.arange(16)[None])

    def forward(self, tokens: Any) -> Any:
        rows = tokens.view(-1, tokens.shape[-1])
        made = self.tokens(rows) + self.places(self.at[:, : rows.shape[1]])
        return made[torch.arange(made.shape[0]), rows.argmax(-1)]


def _dynamic(rank: int) -> Any:
    return dict.fromkeys(range(rank), torch.export.Dim.DYNAMIC)


def test_sizes_are_what_torch_says() -> None:
    """Relax lost those behind a -1 and a table that is cut: "the sizes of getitem_30 are not known"."""
    model, tokens = _LastOfEach().eval(), torch.randint(0, 99, (3, 7))
    session = eqsat_layout.Session(torch.export.export(model, (tokens,), dynamic_shapes=(_dynamic(2),)))
    for given in (tokens, torch.randint(0, 99, (5, 16))):
        np.testing.assert_allclose(session.run(None, {"tokens": given})[0], model(given).detach(), rtol=1e-5, atol=1e-6)
    with pytest.raises(InputError, match="tokens_1 is at most 16"):
        session.run(None, {"tokens": torch.randint(0, 99, (5, 17))})


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizes_go_to_sizes_of_other_tensors(mode: str) -> None:
    """SegFormer: sizes were left as torch's nodes, and of bounds that are sizes nothing was known."""

    class Larger(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return F.interpolate(x, size=y.shape[2:], mode=mode, align_corners=False) + y

    x, y = torch.randn(2, 3, 6, 5), torch.randn(2, 3, 13, 8)
    program = torch.export.export(Larger(), (x, y), dynamic_shapes=(_dynamic(4), _dynamic(4)))
    session = eqsat_layout.Session(program)
    for one, other in ((x, y), (torch.randn(2, 3, 4, 7), torch.randn(2, 3, 9, 9))):
        made = session.run(None, {"x": one, "y": other})[0]
        np.testing.assert_allclose(made, Larger()(one, other), rtol=1e-4, atol=1e-5)


def test_repeats_as_often_as_a_size_says_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM's converter takes numbers only, so that torch wrote all ops in others once more (DETR: half a minute)."""
    times: list[Any] = []
    kind = torch.export.ExportedProgram
    decomposed = kind.run_decompositions
    monkeypatch.setattr(kind, "run_decompositions", lambda *given: times.append(given) or decomposed(*given))
    function = FunctionModule(lambda x, y: y[None].repeat(x.shape[0], 1, 2))
    shapes = ({0: torch.export.Dim.DYNAMIC}, None)
    session = eqsat_layout.Session(torch.export.export(function, (X, ROWS), dynamic_shapes=(shapes,)))
    names = [one.name for one in session.inputs]
    got = session.run(None, dict(zip(names, (X[:3], ROWS), strict=True)))
    np.testing.assert_array_equal(got[0], ROWS[None].repeat(3, 1, 2).numpy())
    assert len(times) == 1


class _Halves(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, y: Any) -> Any:
        return x.reshape(2, -1).sum(0) + y


def test_a_size_that_is_twice_another_one_is_read_from_an_archive(tmp_path: Path) -> None:
    """Torch does not decompose what it saved so: "expected sympy.Symbol"."""
    half = torch.export.Dim("half", max=100)
    given = torch.randn(8), torch.randn(4)
    program = torch.export.export(_Halves(), given, dynamic_shapes=({0: 2 * half}, {0: half}))
    torch.export.save(program, tmp_path / "halves.pt2")
    module = read_model(tmp_path / "halves.pt2").module
    x, y = (list(param.ty.shape) for param in module["main"].params)
    assert sym.Analyzer().can_prove_equal(x[0], 2 * y[0])


class _Small(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x + 1 if x.shape[0] < 16 else x * 2


@pytest.mark.parametrize(
    ("dim", "least", "most"),
    [
        (torch.export.Dim("n", min=4, max=12), 4, 12),
        (2 * torch.export.Dim("n", min=2, max=6), 4, 12),
        (torch.export.Dim.AUTO, 0, 15),  # torch says 2, and runs 1
    ],
)
def test_ranges_of_sizes_are_kept(dim: Any, least: int, most: int) -> None:
    """Torch leaves out what a program does for other sizes, which ran nevertheless."""
    model = from_program(torch.export.export(_Small(), (torch.ones(8, 2),), dynamic_shapes=({0: dim},)))
    own = ranges_of(model.module["main"])
    assert [(one.least, one.most) for one in own] == [(least, most)]
    assert own[0].name == str(model.module["main"].params[0].ty.shape[0].name)


class _Halved(torch.nn.Module):  # type: ignore[misc]
    """Down by convolutions, up again, and beside what it was: a U-Net."""

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.Sequential(*(torch.nn.Conv2d(2, 2, 3, stride=2, padding=1) for _ in range(2)))
        self.up = torch.nn.ConvTranspose2d(2, 2, 4, stride=4)

    def forward(self, x: Any) -> Any:
        return torch.cat([self.up(self.down(x)), x], 1).relu()


def test_sizes_that_torch_alone_knows_to_be_equal() -> None:
    """Of a multiple of a size: "object of type 'NoneType' has no len()"; and what was joined could not be built."""
    sizes = {2: 4 * torch.export.Dim("h", min=2, max=16)}
    program = torch.export.export(_Halved().eval(), (torch.ones(1, 2, 16, 8),), dynamic_shapes=(sizes,))
    main = from_program(program).module["main"]
    joined = [one.value for one in main.body.blocks[0].bindings if str(one.value).startswith("R.concat")]
    one, other = (list(part.shape.values)[2] for part in joined[-1].args[0].ty.fields)
    assert sym.Analyzer().can_prove_equal(one, other)
    assert [int(extent) for extent in list(main.ret_ty.fields[0].shape.values)[1::2]] == [4, 8]
