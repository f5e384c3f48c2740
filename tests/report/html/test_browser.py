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

import eqsat_layout
from eqsat_layout.models import resnet50
from eqsat_layout.targets.lowering import prepared

playwright = pytest.importorskip("playwright.sync_api", reason="the page is tested with playwright")

AVX2 = {"kind": "llvm", "mcpu": "core-avx2"}
CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: set $CHROMIUM to one")

OVERLAPS = """() => {
  const boxes = (selector) => [...document.querySelectorAll('.column.SIDE ' + selector)].map((e) => [e, e.getBoundingClientRect()]);
  const meet = (a, b) => a.left < b.right - 0.5 && b.left < a.right - 0.5 && a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5;
  const cards = boxes('.frame'), bad = [];
  cards.forEach(([e, a], i) => cards.slice(i + 1).forEach(([f, b]) => { if (meet(a, b)) bad.push('cards'); }));
  boxes('.bytes').forEach(([e, a]) => cards.forEach(([f, b]) => { if (meet(a, b)) bad.push('label ' + e.textContent); }));
  document.querySelectorAll('.column.SIDE .row').forEach((row) => {
    const own = row.querySelector('.hit').getBoundingClientRect();
    const texts = [...row.querySelectorAll('text')].map((t) => t.getBoundingClientRect());
    texts.forEach((t) => { if (t.left < own.left || t.right > own.right + 0.5) bad.push('out: ' + row.textContent); });
    texts.forEach((t, i) => texts.slice(i + 1).forEach((u) => { if (meet(t, u)) bad.push('text: ' + row.textContent); }));
  });
  return [cards.length, bad];
}"""

CONTRAST = """() => {
  const channels = (c) => c.match(/[0-9.]+/g).slice(0, 3).map(Number);
  const light = (c) => { const [r, g, b] = channels(c).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!c.startsWith('rgba(0, 0, 0, 0')) return c; } return 'rgb(255, 255, 255)'; };
  const bad = new Set();
  let seen = 0;
  document.querySelectorAll('.row text, .bytes').forEach((t) => {
    const row = t.closest('.row.transform'), ground = row ? getComputedStyle(row.querySelector('.hit')).fill : behind(t.closest('.column'));
    seen++;
    if (ratio(getComputedStyle(t).fill, ground) < 4.5) bad.add(t.getAttribute('class') + ' ' + t.textContent);
  });
  document.querySelectorAll('header *, .tools *, .legend *, aside *, .text *').forEach((e) => {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (own && getComputedStyle(e).display !== 'none') { seen++; if (ratio(getComputedStyle(e).color, behind(e)) < 4.5) bad.add(e.textContent); }
  });
  return [seen, [...bad]];
}"""


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small ResNet with Winograd stages, residual edges, repeats and a transform."""
    mod = prepared(resnet50(image=64, width=32, blocks=(3, 4, 2, 1)))
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


def focused(page: Any) -> Any:
    return page.evaluate(
        "() => { const e = document.activeElement; return [e.dataset.side, e.getAttribute('aria-label')]; }"
    )


@pytest.mark.parametrize("folded", [True, False])
@pytest.mark.parametrize("side", ["before", "after"])
def test_nothing_overlaps(opened: Any, side: str, folded: bool) -> None:
    page = opened()
    if not folded:
        page.click("#fold")
    cards, bad = page.evaluate(OVERLAPS.replace("SIDE", side))
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
    seen, bad = page.evaluate(CONTRAST)
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
    first = focused(page)
    page.keyboard.press("ArrowDown")
    second = focused(page)
    assert second != first
    page.keyboard.press("ArrowUp")
    assert focused(page) == first
    page.keyboard.press("n")
    assert focused(page)[0] == "after"
    assert "changed" in focused(page)[1]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    assert page.evaluate("[...document.querySelectorAll('.row')].every((e) => e.getAttribute('aria-label').length > 3)")
    assert page.evaluate("document.querySelectorAll('.column.after .row[tabindex=\"0\"]').length") == 1


def test_next_leads_through_every_changed_kernel_and_back(opened: Any) -> None:
    page = opened()
    stops = page.evaluate(
        "[...document.querySelectorAll('.column.after .card')].filter((c) => c.querySelector('.row.changed')).length"
    )
    seen = set()
    for _ in range(stops):
        page.click("#next")
        seen.add(page.evaluate("document.querySelector('.row[aria-pressed=true]').dataset.i"))
    assert len(seen) == stops > 5
    page.click("#previous")
    assert page.evaluate("document.querySelector('.row[aria-pressed=true]').dataset.i") in seen


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
    shares = page.evaluate("""() => {
      const at = (side) => new Map([...document.querySelectorAll('.column.' + side + ' .row.op')].map((row) =>
        [row.getAttribute('aria-label').split(', ').slice(0, 2).join(), row.closest('.card').getBoundingClientRect()]));
      const before = at('before'), after = at('after');
      const both = [...before.keys()].filter((key) => after.has(key));
      const middle = (box) => (box.top + box.bottom) / 2;
      return [both.length, both.filter((key) => Math.abs(middle(before.get(key)) - middle(after.get(key))) < 3).length];
    }""")
    assert shares[0] > 20
    assert shares[1] / shares[0] > 0.6


def test_a_narrow_window_has_one_column(opened: Any) -> None:
    page = opened(width=700)
    shown = page.evaluate(
        "[...document.querySelectorAll('.column')].filter((c) => c.offsetParent !== null).map((c) => c.className)"
    )
    assert shown == ["column after"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.click("[data-side=before][role=radio]")
    shown = page.evaluate(
        "[...document.querySelectorAll('.column')].filter((c) => c.offsetParent !== null).map((c) => c.className)"
    )
    assert shown == ["column before"]


def test_the_file_is_small(page_file: Path) -> None:
    assert page_file.stat().st_size < 1_000_000
