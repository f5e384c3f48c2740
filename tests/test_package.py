"""What a new user meets: README's commands and examples, the public names, the files that must be there."""

from __future__ import annotations

import ast
import importlib
import os
import pydoc
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import eqsat_layout
from eqsat_layout.egraph.rules import rules_dir

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


PAGES = sorted((ROOT / "docs").glob("*.md"))


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a page."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run_python(code: str, folder: Path) -> str:
    """What the file of ``code`` prints in a fresh interpreter; fails with its error if it fails."""
    (folder / "example.py").write_text(code, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(folder / "example.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ci_runs_the_readmes_test_command_word_for_word() -> None:
    commands = [line for block in blocks(README, "sh") for line in block.splitlines() if line.endswith("-m pytest")]
    assert len(commands) == 1
    assert commands[0] in (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, id=f"{page.stem}-{i}")
        for page in PAGES
        for i, code in enumerate(blocks(page.read_text(encoding="utf-8"), "python"))
    ],
)
def test_the_examples_of_the_pages_run(code: str, tmp_path: Path) -> None:
    run_python(code, tmp_path)


def test_the_pages_have_examples() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert len(blocks(text, "python")) >= 5
    assert "eqsat_layout.optimize(" in "".join(blocks(text, "python"))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{page.name}" for page in PAGES)])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w-]+", "-", head.lower()).strip("-") for head in heads}, link


def test_every_page_is_in_the_navigation() -> None:
    named = re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(named) == [page.name for page in PAGES]


def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the pages are built with the lint group's mkdocs")
    pytest.importorskip("mkdocstrings", reason="the pages are built with the lint group's mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Session" in (tmp_path / "site/reference/index.html").read_text(encoding="utf-8")


def test_commands_of_bench_that_pages_name_exist() -> None:
    pages = [ROOT / "Makefile", *PAGES, *ROOT.glob("*.md"), *ROOT.glob("rules/*.md"), *ROOT.glob("bench/*.md")]
    texts = {page: page.read_text(encoding="utf-8") for page in pages if page.name != "CHANGELOG.md"}
    named = {found for text in texts.values() for found in re.findall(r"-m (bench[\w.]+)", text)}
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8")
        for path in ROOT.glob("bench/**/*.py")
    }
    commands = {name for name, text in modules.items() if '__name__ == "__main__"' in text}
    assert named <= commands
    in_table = set(re.findall(r"-m (bench[\w.]+)", texts[ROOT / "bench" / "README.md"]))
    own = {name for name in commands if any(f'"{name}"' in text for text in modules.values())}  # started by others
    assert commands - own <= in_table


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "rules/README.md", "bench/README.md", *(f"docs/{p.name}" for p in PAGES)]
)
def test_paths_and_modules_that_a_page_names_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {*re.findall(r"`(?:python )?([\w./-]+\.(?:py|md|egg))[` ]", text), *re.findall(r"\]\(([\w./-]+)\)", text)}
    named |= set(re.findall(r"`((?:eqsat_layout|rules|tests|bench|docs|examples)/[\w./-]*)[` ]", text))
    named -= {"FILE.optimized.py", "__init__.py"}
    missing = [path for path in named if not any((folder / path).exists() for folder in (ROOT, (ROOT / page).parent))]
    for dotted in set(re.findall(r"(?<!\")\beqsat_layout(?:\.\w+)+", text)):  # quoted ones are attributes
        module, _, name = dotted.rpartition(".")
        try:
            importlib.import_module(dotted)
        except ModuleNotFoundError:
            if not hasattr(importlib.import_module(module), name):
                missing.append(dotted)
    assert missing == []


def test_the_public_names_are_there_and_no_others() -> None:
    errors = ["EqsatError", "ValidationError"]
    classes = ["Limits", "OptimizeLayout", "Options", "Plan", "Remote", "Session", "TuneReport"]
    assert sorted(eqsat_layout.__all__) == sorted(
        errors + classes + ["compile", "op", "optimize", "plan", "rule", "transform_layout", "tune"]
    )
    reference = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    for name in eqsat_layout.__all__:
        assert re.search(rf"^::: eqsat_layout\..*\.{name}$", reference, re.MULTILINE), name
        assert getattr(eqsat_layout, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = eqsat_layout.nothing


@pytest.mark.parametrize("name", ["compile", "optimize", "plan", "Session"])
def test_help_lists_every_option(name: str) -> None:
    text = pydoc.render_doc(getattr(eqsat_layout, name), renderer=pydoc.plaintext)
    assert [option for option in eqsat_layout.Options.__annotations__ if f"``{option}``" not in text] == []


def test_the_readme_starts_with_two_lines_from_a_file_to_an_answer() -> None:
    first = re.search(r"^```py\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert first is not None
    assert first.start() < README.index("```sh")
    assert len(ast.parse(first[1]).body) == 3  # the import is one of them
    names = {node.attr for node in ast.walk(ast.parse(first[1])) if isinstance(node, ast.Attribute)}
    assert names == {"Session", "run"}


def test_importing_the_package_imports_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys, eqsat_layout; print([m for m in ('tvm', 'egglog', 'numpy', 'rich') if m in sys.modules])"
    assert run_python(code, tmp_path).strip() == "[]"


def test_the_rules_are_found_in_a_checkout() -> None:
    assert rules_dir() == ROOT / "rules"


def test_the_rules_are_packed_into_the_wheel_where_they_are_looked_for() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        wheel = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"rules": "eqsat_layout/rules"}


def test_the_package_is_typed() -> None:
    assert (ROOT / "eqsat_layout/py.typed").exists()


def test_every_task_of_the_makefile_has_a_help_line() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    declared = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert declared is not None
    for task in declared[1].split():
        assert re.search(rf"^{task}:.* ## \S", text, re.MULTILINE), task
