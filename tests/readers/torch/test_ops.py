"""Ops of torch beside torch itself: arguments that converters ignore, types, indices, whole recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from readers.torch.function_module import FunctionModule
from tvm import tirx

import eqsat_layout
from eqsat_layout.errors import EqsatError
from eqsat_layout.graph.op_names import ops_in
from eqsat_layout.sources.source import source_of

torch = pytest.importorskip("torch")
F = torch.nn.functional
torch.manual_seed(0)
X, ROWS, IMAGE = torch.randn(5, 6), torch.randn(4, 6), torch.randn(2, 3, 6, 6)
WHOLE = torch.randint(-10, 10, (8,))
AT, TO = torch.tensor([3, 0, 1]), torch.tensor([1, 1, 2])
PLACES = torch.randint(0, 6, (5, 3))
MANY = torch.zeros((300, 3), dtype=torch.int64)


def _put(x: Any, i: Any, j: Any) -> Any:
    made = x.clone()
    made[:, i % 3, j] = 1.0
    return made


QUERIES, KEYS = torch.randn(2, 4, 5, 8), torch.randn(2, 4, 6, 8)
SEEN = torch.rand(2, 1, 5, 6) < 0.6
SEEN[:, :, 1] = False
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "sums with a factor": (lambda x, y: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=3), torch.rsub(x, 2)), (X, X)),
    "parts by strides, diagonals, and lists of tensors": (
        lambda x, y: (
            x.as_strided((2, 2), (1, 7), 3),
            torch.as_strided_scatter(x, y[:2, :2], (2, 2), (2, 6), 1),
            torch.diagonal_scatter(x, y[:, 0], 1),
            torch.diagonal_scatter(x.expand(2, 5, 6), y[:2, :4], -1, 1, 2),
            *torch._foreach_add([x, x * 2], [x, x], alpha=2),
            *torch._foreach_mul([x, y], [2.0, 3.0]),
            *torch._foreach_addcmul([x, x], [x, y], [y, y], 2.0),
            *torch._foreach_pow(2.0, [x, y]),
        ),
        (X, torch.randn(5, 6)),
    ),
    "selu, a scaled elu": (F.selu, (X,)),
    "attention with masks, where some see nothing": (
        lambda q, k, seen, more: (
            F.scaled_dot_product_attention(q, k, k, attn_mask=seen),
            F.scaled_dot_product_attention(q, k, k, attn_mask=more, scale=0.3),
            F.scaled_dot_product_attention(q[:, :, :3], k, k, is_causal=True),
            F.scaled_dot_product_attention(q, k[:, :2], k[:, :2], enable_gqa=True),
        ),
        (QUERIES, KEYS, SEEN, torch.where(SEEN[:1], 0.5, -torch.inf)),
    ),
    "quotients of whole numbers": (lambda x: (x / 3, x * 1.5, x // 3, x % 3, x.clamp(min=2)), (WHOLE,)),
    "arithmetic of booleans": (lambda x: ((x > 0) * (x < 1), (x > 0) + (x < 0), torch.isfinite(x)), (X,)),
    "products of other types": (lambda x: (x.double() @ x.double().T, x.long() @ x.long().T), (X,)),
    "pooling into windows of several sizes": (
        lambda x: (
            F.adaptive_max_pool2d(x, 1),
            F.adaptive_max_pool2d(x, (4, 3)),
            F.adaptive_max_pool2d(x, (4, 5), return_indices=True)[1],
        ),
        (IMAGE,),
    ),
    "bags of rows": (
        lambda w, i, ends, scale: (
            F.embedding_bag(i, w, ends, mode="sum", per_sample_weights=scale),
            F.embedding_bag(i, w, ends, mode="mean"),
            F.embedding_bag(i, w, ends, mode="max"),
            F.embedding_bag(i.reshape(2, 3), w, mode="mean"),
        ),
        (X, torch.tensor([0, 3, 4, 4, 1, 2]), torch.tensor([0, 2, 2, 5]), torch.rand(6)),
    ),
    "places in sorted rows": (
        lambda x, y: (
            torch.searchsorted(x.sort(1)[0], y),
            torch.searchsorted(x.sort(1)[0], y, right=True, out_int32=True),
            torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), y, side="right"),
        ),
        (X, torch.randn(5, 3)),
    ),
    "products along an axis": (
        lambda x, n, w: (x.prod(1), n.prod(0, keepdim=True), F.bilinear(x[:, :2], x[:, 2:4], w)),
        (X, WHOLE, torch.randn(3, 2, 2)),
    ),
    "functions near 0": (
        lambda x: (*(f(one) for f in (torch.expm1, torch.log1p) for one in (x, x.double())), torch.expm1(-1 / x)),
        (torch.tensor([-0.5, -0.1, -1e-3, -1e-7, 1e-30, 1e-6, 0.05, 0.0999, 0.2, 0.9]),),
    ),
    "bits as numbers": (lambda x: (x.view(torch.int32), x.half().view(torch.int16)), (X,)),
    "pooling with places": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (IMAGE,)),
    "pooling of bfloat16": (
        lambda x: (
            F.max_pool2d(x, 3, 2, 1).float(),
            F.max_pool2d(x, 2, return_indices=True)[1],
            x.max(0).values.float(),
        ),
        (IMAGE.bfloat16(),),
    ),
    "pooling where a window is cut off": (lambda x: F.max_pool2d(x, 2, 2, 1, ceil_mode=True), (IMAGE,)),
    "experts": (
        lambda x, w, ends: (x.float().histc(4, -1, 1.5), torch._grouped_mm(x, w, offs=ends).float()),
        (torch.randn(9, 16).bfloat16(), torch.randn(3, 16, 8).bfloat16(), torch.tensor([4, 4, 9], dtype=torch.int32)),
    ),
    "largest in two axes": (lambda x: (x.amax((0, 2)), *x.max(1), torch.aminmax(x)), (IMAGE,)),
    "tensors of indices side by side": (
        lambda x, i, j: (x[:, i % 3, :, j], x[:, i % 3, j], x[i[:, None] % 2, j]),
        (IMAGE, AT, TO),
    ),
    "elements put side by side": (_put, (IMAGE, AT, TO)),
    "elements added where they fall": (
        lambda x, i, y: (
            x.scatter_add(1, i, y),
            x.scatter_reduce(1, i, y, "amax"),
            x.scatter_reduce(1, i, y, "amin", include_self=False),
            x.scatter_reduce(1, i, y, "prod", include_self=False),
            x.scatter_reduce(1, i, y, "mean"),
            x.scatter_reduce(1, i, y, "mean", include_self=False),
            x.index_add(0, i[0] % 5, y[:3] @ y.T @ x),
        ),
        (X, PLACES, torch.randn(5, 3)),
    ),
    "means of integers where they fall": (
        lambda x, i: (
            *(x.scatter_reduce(1, i, x[:, :3] + 1, "mean", include_self=own) for own in (True, False)),
            x.index_reduce(0, i[0] % 5, x[:3], "mean"),
            x.to(torch.int8).scatter_reduce(0, MANY, torch.ones_like(MANY).to(torch.int8), "amax", include_self=False),
        ),
        (torch.arange(-13, 17).reshape(5, 6) * 7, PLACES),
    ),
    "roots of infinities": (
        lambda x: (x**0.5, 1 / x**0.5, x**-0.5),
        (torch.tensor([-math.inf, -0.0, 0.0, 4.0, math.inf]),),
    ),
    "means of so many bytes that their number is none": (
        lambda x, ones: x.scatter_reduce(0, MANY[:256], ones, "mean", include_self=False),
        (torch.zeros((2, 3), dtype=torch.int8), torch.ones((256, 3), dtype=torch.int8)),
    ),
    "roots of bfloat16, which are none": (
        lambda x: ((x.bfloat16() ** 0.5).float(), (x.bfloat16() ** -0.5).float()),
        (torch.tensor([-math.inf, -0.0, 4.0]),),
    ),
    "roots of halves, which are powers": (lambda x: (x**0.5, x**-0.5), (torch.tensor([-math.inf, -0.0, 4.0]).half(),)),
    "remainders of a number by tensors": (
        lambda x, i: (7 % x, -7.5 % x, 7 // x, 7 % i, 7 // i, 0.5 % i),
        (torch.tensor([0.1, -0.3, 4.0]), torch.tensor([3, -3, 10])),
    ),
    "numbers that are none": (
        lambda x: (
            x != x,
            x != x.T,
            x != 1,
            x.nanmean(1),
            x.any(1),
            torch.logical_xor(x, x.T),
            torch.bucketize(x, x[2].sort()[0]),
            torch.searchsorted(x[1:].sort(1)[0], x[:2], right=True),
        ),
        (torch.tensor([[math.nan, 0.0, -0.0], [0.0, 0.5, 7.0], [1.0, math.inf, 2.0]]),),
    ),
    "bounds in the wrong order": (
        lambda x, i: (x.clamp(0.5, -0.5), x.clamp(x.flip(0), x * 0.1), i.clamp(min=0), i.clamp(3, -3)),
        (X[:4], WHOLE),
    ),
    "quotients that are rounded down": (
        lambda x, y: (x // y, torch.div(x, y, rounding_mode="floor"), torch.remainder(x, y), x % 0.3, x // 0.1),
        (
            torch.tensor([1.0, -1.0, 1.0, 5.3, 0.0, 7.0, 2.0, -2.0, 3.0]),
            torch.tensor([0.1, 0.1, -0.1, 0.1, 0.1, -7.0, math.inf, math.inf, 0.0]),
        ),
    ),
    "places in rows that are sorted by others": (
        lambda x, y: torch.searchsorted(x, y, sorter=x.argsort(1)),
        (X[:4], ROWS),
    ),
    "negative bytes": (lambda x: -x, (torch.tensor([0, 1, 200, 255], dtype=torch.uint8),)),
    "bytes resized": (
        lambda x: (
            F.interpolate(x, size=(3, 11), mode="bilinear", antialias=True),
            F.interpolate(x, scale_factor=(1.5, 0.7), mode="bilinear"),
            F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True),
        ),
        ((IMAGE[:1] * 40 + 100).to(torch.uint8),),
    ),
    "the largest, none of them, in any order, and of numbers": (
        lambda x: (
            *x.topk(0, 1),
            x.topk(2, 0, sorted=False)[0].sum(0),
            *x[0, 0].topk(1),
            *x[0, 0].sort(),
        ),
        (X,),
    ),
    "nothing that is joined or put somewhere": (
        lambda x, i: (x.mean(1), x.std(1), x.new_zeros(4, 0).index_add(0, i, x[:0]), torch.ones(4, 3)[i].sum(0)),
        (torch.ones(2, 0), torch.zeros(0, dtype=torch.int64)),
    ),
    "rows that are none put into a table": (
        lambda x, i, y: torch.index_put(x, (i,), y, accumulate=True),
        (X, torch.zeros(0, dtype=torch.int64), torch.zeros(0, X.shape[1])),
    ),
    "rows joined where they fall": (
        lambda x, i, y: tuple(
            x.index_reduce(axis, i, y if axis == 0 else y.T, reduce, include_self=reduce != "prod")
            for axis, reduce in ((0, "amax"), (-1, "amin"), (0, "prod"), (1, "mean"))
        ),
        (torch.randn(5, 5), torch.tensor([0, 3, 0, 4]), torch.randn(4, 5)),
    ),
    "fewer indices than data along every axis": (
        lambda x, i, y: (x.scatter(0, i, y), x.scatter_add(0, i, y), x.scatter(-1, i, 1.5)),
        (X, torch.tensor([[0, 4, 2, 1], [3, 1, 5 - 5, 2]]), torch.randn(3, 5)),
    ),
    "resizes with all elements": (
        lambda x: tuple(
            F.interpolate(x, scale_factor=(0.4, 1.7), mode=mode, antialias=True) for mode in ("bilinear", "bicubic")
        ),
        (IMAGE,),
    ),
    "signs": (lambda x, y: (torch.copysign(x, y), torch.signbit(y)), (X, torch.tensor([0.0, -0.0, 1, -3, 2, 1.0]))),
    "elements where a mask says": (lambda x, y: x.masked_scatter(x > 0, y), (X, torch.randn(40))),
    "equal numbers in order": (
        lambda x: (*torch.sort(x, stable=True), *torch.sort(x, dim=0, descending=True, stable=True)),
        (torch.randint(0, 3, (7, 9)),),
    ),
    "quotients of zero": (lambda x: (x / 0, x / 0.0 > 1), (X,)),
    "bits moved by numbers": (lambda x: (x << 2, x >> 1), (WHOLE,)),
    "patches put together": (lambda x: F.fold(x, (4, 5), (2, 3)), (torch.randn(2, 12, 9),)),
    "windows and distances": (lambda x, y: (x.unfold(1, 3, 2), torch.cdist(x, y), torch.cdist(x, y, 1.0)), (X, ROWS)),
    "resizes along one axis and three": (
        lambda x: (F.interpolate(x[0], scale_factor=2, mode="linear"), F.interpolate(x[None], scale_factor=2)),
        (IMAGE,),
    ),
    "mish": (F.mish, (X,)),
    "norms of groups, which are told the extents again": (lambda x: F.group_norm(x[:, :2], 2), (IMAGE,)),
    "transposed convolutions along three axes": (
        lambda x, w, b: (
            F.conv_transpose3d(x[None], w, b, 2, 1, 1),
            F.conv_transpose3d(x[None], w[:, :1], None, (1, 2, 1), groups=3),
            F.conv_transpose3d(x[None], w, b, 2, 1, 1, dilation=(2, 1, 2)),
        ),
        (torch.randn(3, 4, 5, 6), torch.randn(3, 2, 3, 3, 2), torch.randn(2)),
    ),
    "choices between two types": (
        lambda x, w: (torch.where(x > 0, x, w[:6]), torch.where(x > 0, w[:6], 0.5), torch.where(x > 0, x, x.double())),
        (X, WHOLE),
    ),
    "any and all of bytes": (
        lambda x: (x.any(0), x.all(0), x.any(), (x.float() - 3).any(-1, True), x.any((0, 1))),
        (torch.tensor([[0, 3, 2, 0], [0, 0, 5, 1]], dtype=torch.uint8),),
    ),
    "convolutions and norms of doubles": (
        lambda x, w, b: (
            F.conv2d(x, w, b),
            F.conv_transpose1d(x[:, :, 0], w[:, :, 0].transpose(0, 1), b, 2),
            F.layer_norm(x, (6, 6)),
        ),
        (IMAGE.double(), torch.randn(4, 3, 2, 2).double(), torch.randn(4).double()),
    ),
    "convolutions of halves": (
        lambda x, w, b: (F.conv2d(x, w, b).float(), F.conv1d(x[:, :, 0], w[:, :, 0], b).float()),
        (IMAGE.half(), torch.randn(4, 3, 2, 2).half(), torch.randn(4).half()),
    ),
    "convolutions and norms of bfloat16": (
        lambda x, w, b: (F.conv2d(x, w, b).float(), F.layer_norm(x, (6,), b).float()),
        (IMAGE.bfloat16(), torch.randn(6, 3, 2, 2).bfloat16(), torch.randn(6).bfloat16()),
    ),
    "variances beside means": (
        lambda x: (*torch.var_mean(x, (1, 2)), *torch.var_mean(x, 0, correction=0, keepdim=True), *torch.std_mean(x)),
        (IMAGE,),
    ),
    "bits that are moved by bits of another type": (
        lambda x, y: (x << y, y >> x, x << 2, 100 >> x, torch.bitwise_left_shift(x, 3), x << torch.tensor(2)),
        (torch.arange(6, dtype=torch.int32).reshape(2, 3), torch.arange(3)),
    ),
}  # fmt: skip


def leaves(value: Any) -> list[Any]:
    return [value] if isinstance(value, torch.Tensor) else [leaf for part in value for leaf in leaves(part)]


@pytest.mark.parametrize("name", CASES)
def test_ops_give_the_numbers_of_torch(name: str) -> None:
    function, given = CASES[name]
    session = eqsat_layout.Session(torch.export.export(FunctionModule(function), given))
    results = session.run(None, dict(zip([one.name for one in session.inputs], given, strict=True)))
    for got, wanted in zip(results, leaves(function(*given)), strict=True):
        assert (str(got.dtype), got.shape) == (str(wanted.dtype).removeprefix("torch."), tuple(wanted.shape))
        rounding = max(torch.finfo(one.dtype).eps if one.is_floating_point() else 0.0 for one in given)
        tolerance = 1e-12 if wanted.dtype == torch.float64 else 2 * rounding if rounding > 1e-6 else 1e-4
        np.testing.assert_allclose(got, wanted.numpy(), rtol=tolerance, atol=min(tolerance, 1e-5))


def test_an_argument_that_nothing_looks_at_is_refused() -> None:
    pool = torch.nn.AvgPool2d(2, divisor_override=3).eval()
    with pytest.raises(EqsatError, match=r"avg_pool2d.*divisor_override=3"):
        eqsat_layout.plan(torch.export.export(pool, (IMAGE,)))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_long_recurrent_networks_compile_at_once(kind: str) -> None:
    """All steps are one kernel: unrolled, two layers both ways of 60 steps took 48 seconds."""
    network = getattr(torch.nn, kind)(3, 8, 2, bidirectional=True, batch_first=True).eval()
    x = torch.randn(2, 40, 3)
    module = source_of(torch.export.export(network, (x,))).module  # once: torch has each of the steps as an op
    bindings = sum(len(block.bindings) for block in eqsat_layout.plan(module).module["main"].body.blocks)
    assert bindings < 100  # of 40 steps, each way, in each layer
    session = eqsat_layout.Session(module)
    with torch.no_grad():
        wanted = leaves(network(x))
    for got, one in zip(session.run(None, {session.inputs[0].name: x}), wanted, strict=True):
        np.testing.assert_allclose(got, one.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "draws", [torch.nn.Dropout(0.5).train(), FunctionModule(lambda x: x * torch.bernoulli(x.abs().clamp(max=1), 0.5))]
)
def test_what_draws_random_numbers_is_refused(draws: Any) -> None:
    """Dropout that trains, and Bernoulli's numbers, were taken for what they are given."""
    with pytest.raises(EqsatError, match="draws random numbers"):
        eqsat_layout.plan(torch.export.export(draws, (X,)))


def test_dropout_without_effect_is_none() -> None:
    model = torch.nn.Sequential(torch.nn.Dropout(0.0), torch.nn.LSTM(6, 4)).train()
    eqsat_layout.plan(torch.export.export(model, (ROWS,)))


def test_a_pool_whose_places_nobody_asks_for_is_a_pool() -> None:
    """It was made with its places, without a schedule: 30 times the time, and no layout went through it."""
    pool = torch.export.export(torch.nn.MaxPool2d(3, 2, 1), (IMAGE,))
    assert "relax.nn.max_pool2d" in ops_in(source_of(pool).module)


def _strewn(x: Any) -> Any:
    made = x.clone()
    made[:, ::2] = 1
    made[1:-1:2, 1:] += 2
    made.diagonal(1).fill_(7)
    return made, x.var(), x.std(0, correction=0), torch.var_mean(x, 1)


def test_parts_that_are_written_and_variances_of_open_sizes() -> None:
    shapes = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(FunctionModule(_strewn), (X,), dynamic_shapes=(shapes,))
    session = eqsat_layout.Session(program)
    for x in (X, torch.randn(8, 9), torch.randn(5, 3)):  # torch says that there are five rows at least
        wanted = torch.utils._pytree.tree_leaves(_strewn(x))
        for got, one in zip(session.run(None, {session.inputs[0].name: x}), wanted, strict=True):
            np.testing.assert_allclose(got, one, rtol=1e-4, atol=1e-5)


def test_a_size_bounds_floats() -> None:
    """It was refused at the size as a float: "Mismatched type on argument #0"."""
    rows = {0: torch.export.Dim.DYNAMIC}
    bounded = FunctionModule(lambda x: x.clamp(max=x.shape[0]))
    session = eqsat_layout.Session(torch.export.export(bounded, (X * 9,), dynamic_shapes=((rows,),)))
    (got,) = session.run(None, {session.inputs[0].name: X[:4] * 9})
    np.testing.assert_array_equal(got, (X[:4] * 9).clamp(max=4))


def test_a_size_that_torch_finds_to_be_a_number_is_one() -> None:
    """It was a symbol of the name 6, and what it met had no shape: norms that train were left to torch."""
    auto = {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.export.export(FunctionModule(lambda x: x * torch.ones(6)), (X,), dynamic_shapes=((auto,),))
    rows, columns = source_of(program).function.params[0].ty.shape.values
    assert isinstance(columns, tirx.IntImm)
    assert not isinstance(rows, tirx.IntImm)


def test_a_part_of_a_tensor_is_not_read_beyond_its_elements() -> None:
    """torch's strides go on into the rest of the memory, of which the part knows nothing: zeros were read there."""
    program = torch.export.export(FunctionModule(lambda x: x[:2].as_strided((6,), (1,)) * 2), (X.reshape(-1),))
    with pytest.raises(EqsatError, match=r"as_strided.*of a part of a tensor"):
        source_of(program)
