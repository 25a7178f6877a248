"""What the source says to its readers is in the same words as the docs: module heads and public docstrings (issue 19).

The docstrings of settings become docs/reference/configuration.md, those of public names docs/reference/api.md.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.test_words import against

SOURCE = Path(__file__).parents[2] / "src/mcpbridge"
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


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_docstrings_use_the_words_of_the_project(folder: Path) -> None:
    found = folder.glob("*.py") if folder == SOURCE else folder.rglob("*.py")
    assert [
        f"{path.relative_to(SOURCE)}:{first + line - 1}: {word!r}; write: {write}"
        for path in sorted(found)
        for first, said in docstrings(path.read_text("utf-8"))
        for line, word, write in against(said)
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
