"""What the source says to people is in the same words as the docs (issue 19): module heads, public docstrings, texts.

The docstrings of settings become docs/reference/configuration.md, those of public names docs/reference/api.md. Texts
are errors, help and log events.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.test_words import against

SOURCE = Path(__file__).parents[2] / "src/mcpbridge"
NO_TEXTS_FOR_PEOPLE = {
    *("catalog/words.py", "catalog/slim/text.py", "catalog/signatures/types.py"),  # words that are looked for,
    "catalog/definitions/scanner/rules.py",  # and patterns of them
    "catalog/definitions/scanner/data_rules.py",
    "catalog/definitions/scanner/languages.py",
    "catalog/definitions/scanner/rule.py",
    *("catalog/search/llm_router.py", "results/summary.py", "tools/builtin/code/run_code.py"),  # prompts of models,
    *("tools/builtin/recall/definition.py", "tools/builtin/meta/definitions.py"),  # counted in tokens
    *("app/demo/servers/calendar_main.py", "app/demo/servers/files_main.py"),  # servers of somebody else
}
FINE = re.compile(r"\b[Tt]ell the user\b|nothing stands out|^ holding>$")
"""English as anybody writes it."""
FOLDERS = [SOURCE, *sorted(path for path in SOURCE.iterdir() if path.is_dir() and any(path.rglob("*.py")))]


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """The line and text of a module's head and of each public docstring, those of attributes included."""

    def strings(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
        for node in body:
            match node:
                case ast.Expr(value=ast.Constant(value=str(said))):
                    yield node.lineno, said
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    if node.name.startswith("_") and not node.name.endswith("__"):
                        continue
                    if (said := ast.get_docstring(node, clean=False)) is not None:
                        yield node.body[0].lineno, said
                    if isinstance(node, ast.ClassDef):
                        yield from strings(node.body[1 if said is not None else 0 :])
                case _:
                    pass

    yield from strings(ast.parse(text).body)


def texts(text: str) -> Iterator[tuple[int, str]]:
    """The line and text of each string of several words that is no docstring."""
    tree = ast.parse(text)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in docs
        ):
            yield node.lineno, node.value


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_docstrings_use_the_words_of_the_project(folder: Path) -> None:
    found = folder.glob("*.py") if folder == SOURCE else folder.rglob("*.py")
    assert [
        f"{path.relative_to(SOURCE)}:{first + line - 1}: {word!r}; write: {write}"
        for path in sorted(found)
        for first, said in docstrings(path.read_text("utf-8"))
        for line, word, write in against(said)
    ] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_texts_for_people_use_the_words_of_the_project(folder: Path) -> None:
    found = {path.relative_to(SOURCE).as_posix(): path for path in folder.rglob("*.py")}
    if folder == SOURCE:
        found = {name: path for name, path in found.items() if path.parent == SOURCE}
    assert [
        f"{name}:{line}: {word!r}; write: {write}"
        for name in sorted(found.keys() - NO_TEXTS_FOR_PEOPLE)
        for line, text in texts(found[name].read_text("utf-8"))
        for _, word, write in against(FINE.sub("", text))
    ] == []


def test_docstrings_are_found_wherever_people_read_them() -> None:
    text = '''
"""Head."""
SIZE = 1
"""Of a constant."""
def _private():
    """Not this."""
class Public:
    """Class."""
    field: int
    """Of a field."""
    def method(self):
        """Method."""
    def _helper(self):
        """Nor this."""
    def __call__(self):
        """Call."""
'''
    assert [said for _, said in docstrings(text)] == [
        *("Head.", "Of a constant.", "Class.", "Of a field.", "Method.", "Call."),
    ]
