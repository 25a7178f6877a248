"""Build the site of the docs: `docs/` and a few pages from beside it, as static files that load nothing from elsewhere.

    python scripts/site.py               build into site/; fails on any warning, dead link or missing anchor
    python scripts/site.py --out DIR     build into another directory
    python scripts/site.py --external    list the links to other hosts; nothing checks them

The pages are written to be read in the repository too. This copies them, turns what only the repository has (links to
source files, words after the language of a fence) into what a site can show, and runs zensical, which is installed in
`.venv-site`. `zensical.toml` has the order of the pages; `llms.txt` and `llms-full.txt` follow it.
"""

import argparse
import html
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "zensical.toml"
ZENSICAL = ROOT / ".venv-site/bin/zensical"

BESIDE = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security-policy.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "benchmarks/README.md": "project/benchmarks.md",
}
"""Pages outside of `docs/`, and where the site has them. It has a first page of its own in place of the README."""
INSTEAD = {"README.md": "index.md"}
"""Pages that the site does not have, and what links to them lead to."""

FENCE = re.compile(r"^```(\w+) ([^\n]+)$", re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\]]*(?:\[[^\]]*\][^\]]*)*)\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
IMAGE = re.compile(r'(<(?:img|source)\b[^>]*?(?:src|srcset)=")([^"]+)(")')


SEARCHED_FOR = re.compile(r"<!-- search: (.*?) -->", re.DOTALL)
"""Words that people search for and that the page does not use itself: the search finds the page by them."""


class Broken(Exception):
    """A page links to a file that is not there."""


def pages() -> dict[Path, str]:
    """Every page in the repository, and its path in the site."""
    docs = {path: path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))}
    return docs | {ROOT / beside: there for beside, there in BESIDE.items()}


def prepared(page: Path, there: str, known: dict[Path, str]) -> str:
    """The text of a page as the site has it, at the path `there`."""
    text = page.read_text("utf-8")
    folder = Path(there).parent

    def moved(target: str) -> str | None:
        """The same target seen from the page's new place; None if the site does not have it."""
        path, mark, anchor = target.partition("#")
        file = Path(os.path.normpath(page.parent / path))
        if not file.exists():
            raise Broken(f"{page.relative_to(ROOT)} links to {target}")
        if file in known:
            to = known[file]
        elif (instead := INSTEAD.get(os.path.relpath(file, ROOT))) is not None:
            to, anchor, mark = instead, "", ""
        elif file.is_relative_to(ROOT / "docs") and file.is_file():
            to = file.relative_to(ROOT / "docs").as_posix()
        else:
            return None
        return os.path.relpath(to, folder).replace(os.sep, "/") + mark + anchor

    def link(found: re.Match[str]) -> str:
        image, words, target = found.groups()
        if "://" in target or target.startswith(("#", "mailto:")):
            return found[0]
        to = moved(target)
        return f"{image}[{words}]({to})" if to else words

    def image(found: re.Match[str]) -> str:
        return found[1] + (moved(found[2]) or found[2]) + found[3]

    def prose(part: str) -> str:
        return IMAGE.sub(image, LINK.sub(link, part))

    return FENCE.sub(fence, outside_code(text, prose))


def outside_code(text: str, change: Any) -> str:
    """The text, changed where it is not code. A link whose words are code counts as a link."""
    codes: list[str] = []

    def away(found: re.Match[str]) -> str:
        codes.append(found[0])
        return f"\0{len(codes) - 1}\0"

    return re.sub(r"\0(\d+)\0", lambda found: codes[int(found[1])], change(CODE.sub(away, text)))


def fence(found: re.Match[str]) -> str:
    """What follows the language is for the tests; the name of a file is worth showing."""
    language, rest = found.groups()
    return f'```{language} title="{rest}"' if "/" in rest and "=" not in rest else f"```{language}"


def ordered(nav: list[Any]) -> Iterator[tuple[str, str]]:
    """The section and path of each page of the navigation, in order."""
    for entry in nav:
        for title, value in entry.items():
            if isinstance(value, str):
                yield "", value
            else:
                yield from ((title, path) for _, path in ordered(value))


def title_and_gist(text: str) -> tuple[str, str]:
    """A page's heading and its first paragraph on one line."""
    title, _, rest = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).strip().partition("\n")
    paragraph = next((part for part in re.split(r"\n\s*\n", rest) if part.strip() and part.strip()[0] not in "<!|"), "")
    words = LINK.sub(lambda found: found[2], " ".join(paragraph.split()))
    return title.removeprefix("# "), words


def write_for_models(folder: Path, out: Path, nav: list[Any]) -> None:
    """Write `llms.txt`, a list of the pages, and `llms-full.txt`, the text of all of them but generated listings."""
    config = tomllib.loads(CONFIG.read_text("utf-8"))["project"]
    listing, full, section = [f"# {config['site_name']}\n\n> {config['site_description']}\n"], list[str](), ""
    for group, path in ordered(nav):
        text = SEARCHED_FOR.sub("", (folder / path).read_text("utf-8"))
        title, gist = title_and_gist(text)
        if group != section:
            listing.append(f"\n## {group}\n")
            section = group
        (out / path).write_text(text, "utf-8")
        listing.append(f"- [{title}]({path}): {gist}")
        full.append(f"<!-- {path} -->\n\n{text.strip()}\n")
    (out / "llms.txt").write_text("\n".join(listing) + "\n", "utf-8")
    (out / "llms-full.txt").write_text("\n\n".join(full), "utf-8")


def add_searched_words(folder: Path, out: Path) -> None:
    """Write the words that pages name for the search into its index, at the beginning of each page."""
    index = json.loads((out / "search.json").read_text("utf-8"))
    for entry in index["items"]:
        page = folder / entry["location"].replace(".html", ".md")  # a section of a page is no file
        if page.is_file() and (found := SEARCHED_FOR.search(page.read_text("utf-8"))):
            entry["text"] += f" <p>{html.escape(' '.join(found[1].split()))}</p>"
    (out / "search.json").write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), "utf-8")


class Resources(html.parser.HTMLParser):
    """What a page loads by itself, as opposed to what it links to."""

    LOADING = frozenset({("link", "href"), ("object", "data"), ("form", "action")})
    """Attributes that name what is loaded; so do `src`, `srcset` and `poster` of any element."""
    FETCHED = frozenset({"mermaid", "glightbox", "pyodide", "md-source"})
    """Classes of elements for which the script of the theme fetches a library or facts of a repository."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what this element loads."""
        given = dict(attrs)
        self.found += [f"//the-theme/{name}" for name in self.FETCHED & {*(given.get("class") or "").split()}]
        if tag == "link" and given.get("rel") in ("canonical", "prev", "next", "edit"):
            return
        for name, value in attrs:
            if value and (name in ("src", "srcset", "poster") or (tag, name) in self.LOADING):
                self.found.append(value)


def loaded_from_elsewhere(site: Path) -> list[str]:
    """What the pages and styles of a built site load from other hosts."""
    away: list[str] = []
    for page in sorted(site.rglob("*.html")):
        reader = Resources()
        reader.feed(page.read_text("utf-8"))
        away += [f"{page.relative_to(site)}: {one}" for one in reader.found if re.match(r"(\w+:)?//", one)]
    for style in sorted(site.rglob("*.css")):
        urls = re.findall(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)", style.read_text("utf-8"))
        away += [f"{style.relative_to(site)}: {one}" for one in urls]
    return away


def external_links() -> list[str]:
    """The links of all pages to other hosts."""
    return sorted({url for page in pages() for url in re.findall(r"\]\((https?://[^)\s]+)\)", page.read_text("utf-8"))})


def build(out: Path) -> str:
    """Build the site into a directory, which is emptied; return what the generator wrote.

    Raises:
        Broken: a page links to a file that is not there.
        subprocess.CalledProcessError: the generator warns or fails.
    """
    known = {page: there for page, there in pages().items() if page.exists()}
    config = tomllib.loads(CONFIG.read_text("utf-8"))["project"]
    with tempfile.TemporaryDirectory() as near:
        folder = Path(near) / "docs"
        shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.md"))
        for page, there in known.items():
            (folder / there).parent.mkdir(parents=True, exist_ok=True)
            (folder / there).write_text(prepared(page, there, known), "utf-8")
        shutil.copy(CONFIG, near)
        ran = subprocess.run(
            [ZENSICAL, "build", "--clean", "--strict"], cwd=near, capture_output=True, text=True, check=False
        )
        written = re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout + ran.stderr)
        if ran.returncode:
            raise subprocess.CalledProcessError(ran.returncode, "zensical", written)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(Path(near) / "site", out)
        add_searched_words(folder, out)
        write_for_models(folder, out, config["nav"])
    return written


def main() -> int:
    """Build, or list the links to other hosts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "site")
    parser.add_argument("--external", action="store_true")
    options = parser.parse_args()
    if options.external:
        print("\n".join(external_links()))
        return 0
    if not ZENSICAL.exists():
        print("zensical is not installed: run `make docs`, which installs it into .venv-site", file=sys.stderr)
        return 1
    try:
        build(options.out)
    except subprocess.CalledProcessError as failed:
        print(failed.output, file=sys.stderr)
        return 1
    except Broken as broken:
        print(broken, file=sys.stderr)
        return 1
    away = loaded_from_elsewhere(options.out)
    if away:
        print("Pages load from other hosts:", *away, sep="\n", file=sys.stderr)
        return 1
    print(f"{len(list(options.out.rglob('*.html')))} pages in {options.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
