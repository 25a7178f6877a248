"""The site of the docs: built without a warning, whole, and loading nothing from other hosts (issue 19)."""

import re
import subprocess
import tomllib
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
GENERATED = {"api.md", "commands.md", "configuration.md", "errors.md", "frames.md", "json.md", "upstream-faults.md"}
"""Pages that scripts write, or that list every command: they may be long."""
MOST_LINES = 400

needs_generator = pytest.mark.skipif(
    not (ROOT / ".venv-site/.ready").exists(), reason="`make docs` installs the generator of the site"
)


def module() -> Any:
    spec = spec_from_file_location("site_of_docs", ROOT / "scripts/site.py")
    assert spec
    assert spec.loader
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


SITE = module()
NAV = list(SITE.ordered(tomllib.loads(SITE.CONFIG.read_text("utf-8"))["project"]["nav"]))
PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    SITE.build(out)  # fails on a warning
    return out


@needs_generator
def test_every_page_is_built_and_loads_nothing_from_other_hosts(built: Path) -> None:
    for _, path in NAV:
        assert (built / path).with_suffix(".html").exists()
    assert len(list(built.rglob("*.html"))) == len(NAV) + 1, "and the page for what is not found"
    assert SITE.loaded_from_elsewhere(built) == []


@needs_generator
def test_the_search_finds_every_page(built: Path) -> None:
    index = (built / "search.json").read_text("utf-8")
    for _, path in NAV:
        assert Path(path).with_suffix(".html").as_posix() in index, path


@needs_generator
def test_no_fence_is_left_as_text(built: Path) -> None:
    """A fence that the generator does not understand comes out as a line of backticks."""
    for page in built.rglob("*.html"):
        outside = re.sub(r"<(code|pre)\b.*?</\1>", "", page.read_text("utf-8"), flags=re.DOTALL)
        assert "```" not in outside, page.relative_to(built)


@needs_generator
def test_models_get_the_list_of_pages_and_all_of_their_text(built: Path) -> None:
    listing = (built / "llms.txt").read_text("utf-8")
    assert listing.startswith("# mcpbridge\n\n> One MCP server")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", listing, re.MULTILINE)
    assert listed == [path for _, path in NAV]
    full = (built / "llms-full.txt").read_text("utf-8")
    for path in listed:
        assert (built / path).read_text("utf-8").strip() in full


@pytest.mark.parametrize(
    "line",
    [
        '<script src="https://cdn.example.com/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.com/css">',
        '<img srcset="https://example.com/a.png">',
        '<pre class="mermaid"><code>graph</code></pre>',
        "<style></style>",
    ],
)
def test_what_is_loaded_from_elsewhere_is_seen(line: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(f'<a href="https://example.com">a link</a><img src="near.png">{line}')
    (tmp_path / "near.css").write_text("a { background: url(near.png) }")
    if line == "<style></style>":
        assert SITE.loaded_from_elsewhere(tmp_path) == []
        (tmp_path / "far.css").write_text("@import 'https://example.com/x.css';")
    assert len(SITE.loaded_from_elsewhere(tmp_path)) == 1


@needs_generator
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    page, config = root / "docs/index.md", root / "zensical.toml"
    config.write_text('[project]\nsite_name = "x"\nsite_description = "y"\nnav = [{ Home = "index.md" }]\n')
    for name, value in {"ROOT": root, "CONFIG": config, "BESIDE": {}}.items():
        monkeypatch.setattr(SITE, name, value)
    page.write_text("# Page\n\nSee [here](#page) and `[there](gone.md)`.\n")
    SITE.build(tmp_path / "out")
    page.write_text("# Page\n\nSee [there](#nowhere).\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        SITE.build(tmp_path / "out")
    assert "anchor does not exist" in failed.value.output
    page.write_text("# Page\n\nSee [there](gone.md).\n")
    with pytest.raises(SITE.Broken, match=r"docs/index\.md links to gone\.md"):
        SITE.build(tmp_path / "out")


def test_every_page_is_in_the_navigation_once() -> None:
    there = [there for page, there in SITE.pages().items() if page.exists()]
    assert sorted(path for _, path in NAV) == sorted(there)
    assert [path for path, times in Counter(path for _, path in NAV).items() if times > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_begins_with_what_it_gives_and_is_not_too_long(page: Path) -> None:
    text = page.read_text("utf-8")
    title, gist = SITE.title_and_gist(text)
    assert title
    assert not title.startswith("<")
    assert len(gist.split()) >= 8, "the first paragraph says what the reader gets"
    if page.name not in GENERATED:
        assert len(text.splitlines()) <= MOST_LINES
