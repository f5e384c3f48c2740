"""``torch.compile(model, backend="eqsat_layout")``: what it runs, and what it leaves to torch."""

from __future__ import annotations

import copy
import logging
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from eqsat_layout.session import torch_backend  # noqa: E402


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who ran a graph, in order: real runs of sessions."""
    seen: list[str] = []
    call = torch_backend._Compiled.__call__

    def seeing(self: Any, *given: Any) -> Any:
        seen.append("ours")
        return call(self, *given)

    monkeypatch.setattr(torch_backend._Compiled, "__call__", seeing)
    return seen


def compiled(model: Any, **options: Any) -> Callable[..., Any]:
    return torch.compile(model, backend=torch_backend.backend, **options)  # type: ignore[no-any-return]


def net() -> Any:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten()
    ).eval()


def test_the_entry_point_names_the_backend() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    ((name, path),) = tomllib.loads(text)["project"]["entry-points"]["torch_dynamo_backends"].items()
    assert (name, path) == ("eqsat_layout", "eqsat_layout.session.torch_backend:backend")


def test_a_model_is_run_by_us_for_one_size_and_for_any(runs: list[str]) -> None:
    model = net()
    fast = compiled(model)
    with torch.no_grad():
        for batch in (1, 3, 5, 7):
            x = torch.randn(batch, 3, 8, 8)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert runs == ["ours"] * 4


def test_graph_breaks_give_a_graph_each(runs: list[str]) -> None:
    def model(x: Any) -> Any:
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        return y * 2

    x = torch.randn(4)
    torch.testing.assert_close(compiled(model)(x), model(x))
    assert runs == ["ours", "ours"]


def test_weights_that_change_are_not_run_as_they_were(runs: list[str], caplog: pytest.LogCaptureFixture) -> None:
    model = net()
    fast, x = compiled(model), torch.randn(1, 3, 8, 8)
    with torch.no_grad():
        fast(x)
        model[0].weight.mul_(2)
        with caplog.at_level(logging.WARNING, "eqsat_layout"):
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert "parameters were changed" in caplog.text


def _through_data(model: Any) -> None:
    model[1].running_mean.data.add_(1)


def _through_data_to_large_ones(model: Any) -> None:
    model[0].weight.data.mul_(2)


def _through_numpy(model: Any) -> None:
    model[0].weight.detach().numpy()[:] = 0.5


def _by_training(model: Any) -> None:
    model.train()
    model(torch.randn(4, 32, 8, 8))
    model.eval()


@pytest.mark.parametrize("write", [_through_data, _through_data_to_large_ones, _through_numpy, _by_training])
def test_writes_that_torch_does_not_count_are_seen(
    write: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Training between two calls changes a norm's statistics: the old ones were used."""
    model = torch.nn.Sequential(torch.nn.Conv2d(32, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    fast, x = compiled(model), torch.randn(1, 32, 8, 8)
    with torch.no_grad():
        fast(x)
        write(model)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert "parameters were changed" in caplog.text


class Replacing(torch.nn.Module):  # type: ignore[misc]
    """A buffer that another tensor takes the place of, at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        self.sum = self.sum + x
        return self.sum * 2


@pytest.mark.parametrize("how", ["attribute", "data", "forward"])
def test_tensors_of_a_model_that_are_replaced_are_not_run_as_they_were(how: str) -> None:
    """Only writes were noticed: a parameter that took the place of another one was ignored."""
    model = Replacing() if how == "forward" else torch.nn.Linear(4, 3)
    fast, x = compiled(model), torch.ones(2, 4) if how != "forward" else torch.ones(4)
    with torch.no_grad():
        before = fast(x)
        if how == "attribute":
            model.weight = torch.nn.Parameter(torch.full((3, 4), 2.0))
        elif how == "data":
            model.weight.data = torch.full((3, 4), 2.0)
        expected = before * 2 if how == "forward" else torch.full((2, 3), 8.0) + model.bias
        torch.testing.assert_close(fast(x), expected)


def _view_of_input(x: Any) -> Any:
    y, z = x.t(), x * 2
    torch._dynamo.graph_break()
    y.add_(1)
    return x, z


def _same_as_input(x: Any) -> Any:
    y, z = x.contiguous(), x * 2
    torch._dynamo.graph_break()
    y.add_(1)
    return x, z


def _view_of_result(x: Any) -> Any:
    y = x + 1
    v = y[0]
    torch._dynamo.graph_break()
    v.zero_()
    return y


def _views_of_nothing_that_is_given(x: Any) -> Any:
    first, second = (x + 1).view(-1), (x * 2).sum()
    whole = first.view(3, 4)
    torch._dynamo.graph_break()
    whole.mul_(3)
    return first, second


def _parts(x: Any) -> Any:
    y = x + 1
    parts = y.split(2)
    torch._dynamo.graph_break()
    parts[0].zero_()
    return y


def _written_before(x: Any) -> Any:
    y = x.view(-1)
    x.add_(1)
    return y, x * 2


@pytest.mark.parametrize(
    "model", [_view_of_input, _same_as_input, _view_of_result, _views_of_nothing_that_is_given, _parts, _written_before]
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_results_that_share_memory_go_on_sharing_it(model: Any, dynamic: bool, runs: list[str]) -> None:
    """They were copies, so that a write to one was not seen in the other, or in the input."""
    x = torch.randn(3, 4)
    ours = x.clone()
    expected = model(x)
    torch.testing.assert_close(compiled(model, dynamic=dynamic)(ours), expected)
    torch.testing.assert_close(ours, x)
    assert runs


def test_results_of_bfloat16(runs: list[str]) -> None:
    """NumPy has no name of its own for it: the first call raised TypeError."""
    model = torch.nn.Linear(8, 4).bfloat16()
    x = torch.randn(2, 8).bfloat16()
    with torch.no_grad():
        torch.testing.assert_close(compiled(model)(x), model(x), rtol=2e-2, atol=2e-2)
    assert runs == ["ours"]


def test_what_we_can_not_run_torch_runs(runs: list[str], caplog: pytest.LogCaptureFixture) -> None:
    model, x = net(), torch.randn(1, 3, 8, 8)
    with caplog.at_level(logging.WARNING, "eqsat_layout"):
        compiled(model)(x).sum().backward()
    assert model[0].weight.grad is not None
    assert "torch runs a graph" in caplog.text
    assert not runs


def test_a_graph_of_views_is_no_cause_to_warn(runs: list[str], caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(2, 3, 4)
    with caplog.at_level(logging.WARNING, "eqsat_layout"):
        torch.testing.assert_close(compiled(lambda x: (x.transpose(0, 1), x[0]))(x)[0], x.transpose(0, 1))
    assert not caplog.text
    assert not runs


def _written_twice(x: Any) -> Any:
    y = x + 1
    z = y.add_(1)
    return z, z[0]


def _written_and_given_back(x: Any) -> Any:
    x[:, 1:].mul_(2)
    x[0] = 5
    return x.add_(1), x[1:], x.sum()


def _only_written(x: Any) -> None:
    x.mul_(2)


@pytest.mark.parametrize("model", [_written_twice, _written_and_given_back, _only_written])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_written_to_inputs_is_there(model: Any, dynamic: bool, runs: list[str]) -> None:
    """Graphs that write to their inputs were left to torch; a write to a result was done twice where two share it."""
    x = torch.randn(3, 3)
    ours, fast = x.clone(), compiled(model, dynamic=dynamic)
    for _ in range(2):
        torch.testing.assert_close(fast(ours), model(x))
        torch.testing.assert_close(ours, x)
    assert runs == ["ours", "ours"]


def test_inputs_that_share_what_is_written(caplog: pytest.LogCaptureFixture) -> None:
    def model(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2

    fast, memory = compiled(model), torch.zeros(8)
    assert fast(memory[:4], memory[4:]).tolist() == [0, 0, 0, 0]
    assert "two of its inputs share" not in caplog.text
    assert fast(memory[:4], memory[3:7]).tolist() == [4, 0, 0, 0]
    assert "two of its inputs share" in caplog.text


class Counting(torch.nn.Module):  # type: ignore[misc]
    """As a cache of keys of fixed length is written to."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.norm = norm
        self.register_buffer("seen", torch.zeros(4, 3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        self.seen[self.count + torch.arange(x.shape[0])] = self.norm(x)
        self.count += x.shape[0]
        return self.seen @ x.mT


@pytest.mark.parametrize("dynamic", [False, True])
def test_buffers_that_a_model_writes_to(dynamic: bool, runs: list[str]) -> None:
    """A norm that trains, or a cache, was left to torch. Statistics of a norm were 0, and a size that is added to a
    tensor without axes was refused."""
    model = Counting(torch.nn.Identity() if dynamic else torch.nn.BatchNorm1d(3)).train()
    fast, own = compiled(copy.deepcopy(model), dynamic=dynamic), model
    with torch.no_grad():
        for _ in range(2):
            x = torch.randn(2, 3)
            torch.testing.assert_close(fast(x), own(x), rtol=1e-4, atol=1e-5)
    for name, wanted in own.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[f"_orig_mod.{name}"], wanted, rtol=1e-4, atol=1e-5)
    assert runs == ["ours", "ours"]


def _laid_channels_last(x: Any) -> Any:
    y = x * 2
    return y, y.permute(0, 2, 3, 1).view(-1, 3)


def test_results_lie_in_memory_as_torchs_do(runs: list[str]) -> None:
    """Views that there are of torch's memory alone were errors, within a graph and behind one."""
    fast = compiled(_laid_channels_last)
    for batch in (2, 3):
        x = torch.randn(batch, 3, 4, 5).to(memory_format=torch.channels_last)
        results = fast(x)
        for own, wanted in zip(results, _laid_channels_last(x), strict=True):
            torch.testing.assert_close(own, wanted)
            assert own.stride() == wanted.stride()
    assert runs == ["ours", "ours"]


def test_numbers_of_a_model_are_known_where_sizes_are_dynamic(
    runs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Dynamo gives the eps of a norm as an input then: every transformer was left to torch."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Dropout(0.1)).eval()
    fast = compiled(model, dynamic=True)
    with torch.no_grad():
        for rows in (3, 5):
            x = torch.randn(rows, 8)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
        assert runs == ["ours", "ours"]
        model[1].eps = 0.5
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert not [record for record in caplog.records if "torch runs a graph of" in record.message]


def _with_gradients_of_a_part(x: Any, w: Any) -> Any:
    with torch.enable_grad():
        return (x * w).sum()


def test_gradients_of_a_part_of_a_graph_are_torchs(runs: list[str]) -> None:
    """The result said that it needs none."""
    x, w = torch.randn(4), torch.randn(4, requires_grad=True)
    with torch.no_grad():
        result = compiled(_with_gradients_of_a_part)(x, w)
    result.backward()
    torch.testing.assert_close(w.grad, x)
    assert not runs


def test_dropout_that_trains_is_torchs(runs: list[str]) -> None:
    """It was left out."""
    model, x = torch.nn.Dropout(0.5).train(), torch.ones(64)
    with torch.no_grad():
        assert set(compiled(model)(x).tolist()) == {0.0, 2.0}
    assert not runs


def test_an_option_that_is_none_is_said_and_not_worked_around() -> None:
    with pytest.raises(Exception, match="did you mean 'approx'"):
        compiled(net(), options={"aprox": False})(torch.randn(1, 3, 8, 8))


def test_inputs_of_other_strides_are_run_by_us(runs: list[str]) -> None:
    """Dynamo gives strides as inputs that nothing is made of: such graphs were left to torch."""
    fast = compiled(torch.relu)
    whole = torch.randn(6, 24)
    for x in (whole[:, :8], whole[:4, ::2][:, :10], whole[:, ::3]):
        torch.testing.assert_close(fast(x), torch.relu(x))
    assert runs == ["ours"] * 3


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layers_in_evaluation_are_run_by_us(norm_first: bool, runs: list[str]) -> None:
    """torch has one op for such a layer, and no definition of it in others."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first, activation="gelu")
    x, padding = torch.randn(2, 3, 8), torch.tensor([[False, False, False], [False, True, True]])
    with torch.no_grad():
        wanted = layer.eval()(x, src_key_padding_mask=padding)
        got = compiled(layer)(x, src_key_padding_mask=padding)
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert runs


def _by_a_number(x: Any, count: int) -> Any:
    return x[:, :count].relu() * count, x.shape[0]


def test_whole_numbers_are_given_to_a_graph_and_sizes_by_it(runs: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """Graphs with an argument that is no size, or with a result that is one, were left to torch."""
    fast = compiled(_by_a_number)
    with torch.no_grad():
        for rows, count in ((4, 2), (4, 3), (5, 5), (6, 1), (6, 4)):
            x = torch.randn(rows, 8)
            result, size = fast(x, count)
            assert size == rows
            torch.testing.assert_close(result, _by_a_number(x, count)[0])
        assert runs == ["ours"] * 5
        assert "torch runs a graph" not in caplog.text
        torch.testing.assert_close(fast(x, -3)[0], _by_a_number(x, -3)[0])


def test_autocast_that_ends_within_a_graph(runs: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """Exporting took values for float32 that are bfloat16, and the graph was left to torch."""
    model = torch.nn.Linear(8, 4)

    def function(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            narrow = model(x)
            with torch.autocast("cpu", enabled=False):
                wide = model(x)
        return narrow.float() + wide

    x = torch.randn(2, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(function)(x), function(x), rtol=1e-2, atol=1e-2)
    assert runs == ["ours"]
    assert not [one for one in caplog.records if one.name == "eqsat_layout"]


def test_numbers_that_change_become_inputs(runs: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """Each graph was compiled for one number, and others were left to torch."""

    def function(x: Any, scale: float) -> Any:
        return (x * scale).relu()

    scaled, x = compiled(function), torch.randn(2, 8)
    for scale in (1.5, 2.5, 3.5):
        torch.testing.assert_close(scaled(x, scale), function(x, scale))
    assert set(runs) == {"ours"}
    assert not [one for one in caplog.records if one.name == "eqsat_layout"]


def test_numbers_beside_whole_numbers_are_left_to_torch() -> None:
    """A tensor without axes would make float64 of them."""

    def function(x: Any, scale: float) -> Any:
        return x * scale

    scaled, x = compiled(function), torch.arange(6)
    for scale in (1.5, 2.5, 3.5):
        torch.testing.assert_close(scaled(x, scale), function(x, scale))


def test_a_graph_without_inputs_is_run_by_us(runs: list[str], caplog: pytest.LogCaptureFixture) -> None:
    """It was left to torch: "`inputs` has 0 elements, but `dynamic_shapes` has 1 elements"."""

    def table(x: Any) -> Any:
        return torch.arange(6.0).reshape(2, 3) * 2

    torch.testing.assert_close(compiled(table)(torch.ones(1)), table(torch.ones(1)))
    assert runs == ["ours"]
    assert not [one for one in caplog.records if one.name == "eqsat_layout" and one.levelno >= logging.WARNING]
