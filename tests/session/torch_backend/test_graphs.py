"""``torch.compile(model, backend="eqsat_layout")``: what it runs, and what it leaves to torch."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from session.torch_backend.compiled import compiled, net  # noqa: E402


def test_the_entry_point_names_the_backend() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
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


def test_a_graph_that_torch_can_not_export_is_not_printed(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A cache that is written at a place which a tensor says: fifty lines of graph on standard error."""

    class Cache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.zeros(1, 8, 4))

        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            self.kept[:, at] = x[:, 0]
            return self.kept * 2

    model, x = Cache().eval(), torch.randn(1, 1, 4)
    with torch.no_grad():
        made = compiled(model)(x, torch.tensor(2))
    torch.testing.assert_close(made[:, 2], 2 * x[:, 0])
    assert "def forward" not in "".join(capfd.readouterr())
    assert any("torch runs a graph of" in record.message for record in caplog.records)
