"""The page in a browser: nothing overlaps, all can be read, keys lead everywhere, and nothing is asked of anybody.

Needs playwright and a Chromium: ``$CHROMIUM`` or one on the path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs import AVX2, program
from tvm.relax import op

import eqsat_layout
from eqsat_layout.graph.frozen import FROZEN_ATTRIBUTE
from eqsat_layout.models import resnet50
from eqsat_layout.report.html.page import Summary, render
from eqsat_layout.report.html.picture import Picture, PictureEdge, PictureNode
from eqsat_layout.targets.lowering import prepared

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")

NAMES = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell", "chrome-headless-shell")
CHROMIUM = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: set $CHROMIUM to one")

CHECKS = (Path(__file__).parent / "checks.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small ResNet with Winograd stages, residual edges, repeats and a transform."""
    mod = prepared(resnet50(image=64, width=32, blocks=(3, 4, 2, 1)))
    frozen = mod["main"].with_attr(FROZEN_ATTRIBUTE, {"stage2_block1_conv2": ["NHCW", "OIHW"]})
    mod.update_func(mod.get_global_var("main"), frozen)
    path = tmp_path_factory.mktemp("page") / "plan.html"
    path.write_text(eqsat_layout.plan(mod, AVX2).html("A small ResNet"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as own:
        flags = ["--no-sandbox", "--disable-gpu"]
        started = own.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, page_file: Path) -> Iterator[Any]:
    """Opens the page in a window of some size; fails on errors of scripts and on requests."""
    said: list[str] = []
    pages: list[Any] = []

    def open_page(width: int = 1500, height: int = 900, **how: Any) -> Any:
        page = browser.new_page(viewport={"width": width, "height": height}, **how)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("console", lambda message: said.append(message.text))
        page.on("request", lambda request: said.append(request.url) if request.url != page_file.as_uri() else None)
        page.goto(page_file.as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert said == []


def ask(page: Any, call: str) -> Any:
    """What a function of ``checks.js`` says."""
    return page.evaluate(f"() => {{ {CHECKS}\nreturn {call}; }}")


@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("side", ["before", "after"])
def test_nothing_overlaps(opened: Any, side: str, folded: bool) -> None:
    page = opened()
    if not folded:
        page.click("#fold")
    cards, bad = ask(page, f"overlaps({side!r})")
    assert cards > 10
    assert bad == []


def test_folding_shows_less(opened: Any) -> None:
    page = opened()
    folded = page.evaluate("document.querySelectorAll('.card').length")
    assert page.evaluate("document.querySelectorAll('.badge').length") > 0
    page.click("#fold")
    assert page.evaluate("document.querySelectorAll('.card').length") > folded
    assert page.evaluate("document.querySelectorAll('.badge').length") == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(opened: Any, scheme: str) -> None:
    page = opened(color_scheme=scheme)
    page.click("#next")
    seen, bad = ask(page, "unreadable()")
    assert seen > 100
    assert bad == []


def test_a_click_tells_what_is_known(opened: Any) -> None:
    page = opened()
    page.click(".column.after .row.op.changed >> nth=0")
    told = page.inner_text("#details")
    for word in ("layout", "cost", "why", "rules", "kernel", "before", "Ways to make it"):
        assert word in told, word


def test_keys_lead_everywhere(opened: Any) -> None:
    page = opened()
    page.focus(".column.after .row[tabindex='0']")
    first = ask(page, "focused()")
    page.keyboard.press("ArrowDown")
    second = ask(page, "focused()")
    assert second != first
    page.keyboard.press("ArrowUp")
    assert ask(page, "focused()") == first
    page.keyboard.press("n")
    assert ask(page, "focused()")[0] == "after"
    assert "changed" in ask(page, "focused()")[1]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    assert page.evaluate("[...document.querySelectorAll('.row')].every((e) => e.getAttribute('aria-label').length > 3)")
    assert page.evaluate("document.querySelectorAll('.column.after .row[tabindex=\"0\"]').length") == 1


def test_the_first_screen_says_what_changes_why_and_what_stays(opened: Any) -> None:
    page = opened(width=1440)
    for what in (".changes td.why >> nth=0", ".stays li >> nth=0", "#next"):
        box = page.locator(what).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 900, what
    assert "costs" in page.inner_text(".stays small >> nth=0")
    page.click(".changes button >> nth=0")
    assert page.inner_text("#details h2") in page.inner_text(".changes")


def test_repeats_are_unfolded_and_folded_by_keys(opened: Any) -> None:
    """The badge could be clicked only, and what was unfolded stayed so."""
    page = opened()
    cards = page.evaluate("document.querySelectorAll('.card').length")
    page.focus(".column.after .badge >> nth=0")
    assert "unfold" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelectorAll('.card').length") > cards
    assert "fold the repeats again" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelectorAll('.card').length") == cards


def test_escape_closes_what_is_told(opened: Any) -> None:
    page = opened(width=700)
    page.click("#next")
    assert page.locator("#details .close").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("#details .hint").count() == 1
    assert page.locator(".row[aria-pressed=true]").count() == 0


def test_every_heading_and_button_has_a_name(opened: Any) -> None:
    page = opened()
    page.click("#next")
    names = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,button,[role=button]')]"
        ".map((e) => (e.getAttribute('aria-label') || e.textContent).trim())"
    )
    assert len(names) > 20
    assert all(names)


def test_next_leads_through_every_changed_kernel_and_back(opened: Any) -> None:
    page = opened()
    cards = ask(page, "changedCards()")
    page.click("#next")
    seen = [ask(page, "chosen()")]
    while page.click("#next") or ask(page, "chosen()") != seen[0]:
        seen.append(ask(page, "chosen()"))
        assert len(seen) < 200
    assert len(cards) > 5
    assert all(set(card) & set(seen) for card in cards)
    page.click("#previous")
    assert ask(page, "chosen()") == seen[-1]


def test_what_is_gone_is_a_change(browser: Any, tmp_path: Path) -> None:
    """Where a plan only left ops out, "next change" and the row of the layout transforms did nothing."""

    def body(builder: Any, x: Any) -> Any:
        y = builder.emit(op.permute_dims(builder.emit(op.permute_dims(x, [1, 0]), "there"), [1, 0]), "back")
        return op.nn.relu(y)

    path = tmp_path / "gone.html"
    path.write_text(eqsat_layout.plan(program(body, (64, 32)), AVX2).html(), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    for button in ("#next", ".changes button >> nth=0"):
        page.click(button)
        assert ask(page, "chosen()").startswith("before ")
        page.keyboard.press("Escape")
    page.close()


def test_what_all_later_ops_read_is_drawn_at_once(browser: Any, tmp_path: Path) -> None:
    """DenseNet's page took seconds to open: dagre led each edge through all rows that it crosses."""
    nodes = tuple(PictureNode("op", "concat", f"x{i}", "NCHW", "1x8", 1e-6, (), binding=i) for i in range(120))
    edges = tuple(PictureEdge(a, b, 1024) for b in range(120) for a in range(b))
    picture = Picture("main", nodes, edges)
    path = tmp_path / "dense.html"
    path.write_text(render([picture], [picture], Summary("dense", [], [], [], [])), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert ask(page, "overlaps('after')") == [120, []]
    assert page.evaluate("document.querySelectorAll('.column.after .edge').length") == 119 * 60
    page.close()


def test_search_finds(opened: Any) -> None:
    page = opened()
    page.fill("#search", "winograd")
    count = int(page.inner_text("#found").split()[0])
    assert count > 0
    page.press("#search", "Enter")
    assert page.inner_text("#found") == f"1 of {count}"
    assert "winograd" in page.inner_text("#details")


def test_ops_stand_beside_themselves(opened: Any) -> None:
    """Aligned by op: for most ops that are drawn on both sides, the cards are at one height."""
    page = opened()
    both, level = ask(page, "aligned()")
    assert both > 20
    assert level / both > 0.6


def test_a_narrow_window_has_one_column(opened: Any) -> None:
    page = opened(width=700)
    shown = ask(page, "shownColumns()")
    assert shown == ["column after"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click("[data-show=before]")
    shown = ask(page, "shownColumns()")
    assert shown == ["column before"]


def test_a_phone_says_why(opened: Any) -> None:
    """Below 520 pixels the reasons of changes were hidden."""
    page = opened(width=400)
    assert page.is_visible(".changes td.why >> nth=0")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_file_is_small(page_file: Path) -> None:
    assert page_file.stat().st_size < 1_000_000
