"""Tensors that are written to, replaced or shared beside what ``torch.compile`` runs by us."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from session.torch_backend.compiled import compiled, net  # noqa: E402


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


@pytest.mark.parametrize("dynamic", [False, True])
def test_layers_of_one_class_are_each_compiled(
    dynamic: bool, runs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Dynamo makes one graph for both: torch ran all but the first, and said that parameters were changed."""
    torch._dynamo.reset()
    layers = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval() for _ in range(3)]
    fast = [compiled(one, dynamic=dynamic) for one in layers]
    with torch.no_grad(), caplog.at_level(logging.WARNING, "eqsat_layout"):
        for rows in (3, 5):
            for one, model in zip(fast, layers, strict=True):
                x = torch.randn(rows, 4)
                torch.testing.assert_close(one(x), model(x), rtol=1e-4, atol=1e-5)
    assert not caplog.text
    assert len(runs) == 6 + 4  # the first one passes on what the other two are given
    with torch.no_grad(), caplog.at_level(logging.WARNING, "eqsat_layout"):
        layers[1][0].weight.mul_(2)
        x = torch.randn(3, 4)
        torch.testing.assert_close(fast[1](x), layers[1](x), rtol=1e-4, atol=1e-5)
    assert "parameters were changed" in caplog.text
