"""Documents cut by the strategy `truncate`: the examples of `tests/results/truncated.txt`.

Whoever changes what is kept writes the file anew with `PYTHONPATH=tests python -m support.truncate_examples --write`.
"""

import sys
from pathlib import Path
from typing import Any

from mcpbridge.results.document import Document, read
from mcpbridge.results.exact_json import write_json
from mcpbridge.results.truncate import shorten_error, truncate
from support.preview_examples import DOCUMENTS

FILE = Path(__file__).parents[1] / "results" / "truncated.txt"

ROOMS = (100, 101, 140, 200, 330, 700, 1500)

VALUES: dict[str, Any] = {
    "a list of numbers": list(range(300)),
    "a list of long texts": ["x" * 300, "y" * 300],
    "a list of one object": [{"a": "b" * 90, "c": list(range(90))}],
    "a list that begins with a list": [list(range(200)), 1, 2],
    "a list that begins with nothing": [[], {}, "", *range(200)],
    "a text": "word " * 100,
    "a text with quotes": 'a "b" \n' * 100,
    "one long member": {"a": 1, "b": "x" * 900, "c": [1, 2]},
    "long members": {name: "x" * (90 * (at + 1)) for at, name in enumerate("abcdef")},
    "lists in proportion": {"a": list(range(300)), "b": list(range(100)), "c": {"d": list(range(50))}},
    "many small members": {f"member {at}": at for at in range(90)},
    "many members that hold others": {f"m{at}": {"n": at, "t": [at] * 3} for at in range(40)},
    "a few members that hold much": {f"m{at}": {f"k{inner}": "x" * 30 for inner in range(9)} for at in range(3)},
    "long names": {"n" * 80: 1, "m" * 80: [1, 2, 3], "o" * 80: 4},
    "numbers that are long": {"a": 10**90, "b": -(10**80), "c": True, "d": False, "e": None, "f": "x" * 90},
    "more cuts than are told": {f"list{at}": [f"{at} and {n}" for n in range(40)] for at in range(12)},
    "cuts with long names": {"list " * 20 + str(at): [f"{at} and {n}" for n in range(90)] for at in range(3)},
    "nested": {"a": {"b": {"c": [{"d": list(range(100))}] * 9}}},
}


def deep(levels: int) -> Any:
    """Lists in lists around a text."""
    return [deep(levels - 1)] if levels else "x" * 600


def texts() -> dict[str, Document]:
    """Documents of other kinds."""
    rows = "".join(f"{at},name {at},{at * at}\n" for at in range(90))
    return {
        "lines with blank ones": read("".join(f'{{"n": {at}, "text": "row {at}"}}\n\n' for at in range(60))),
        "one long line of JSON lines": read("".join(f'{{"n": {at}, "text": "{"x" * 400}"}}\n' for at in range(9))),
        "csv": read(f"id,name,square\n{rows}"),
        "csv with semicolons": read(f"id,name,square\n{rows}".replace(",", ";")),
        "csv with a blank line first": read(f"\nid,name,square\n{rows}"),
        "csv of long rows": read("id,text\n" + "".join(f"{at},{'x' * 300}\n" for at in range(20))),
        "a table": read("| id | name |\n|---|---|\n" + "".join(f"| {at} | name {at} |\n" for at in range(60))),
        "long lines": Document("x" * 150 + "\n" + "y" * 500 + "\n" + "z" * 500, "text"),
        "short lines": Document("a line of some words\n" * 100, "text"),
    }


def examples() -> str:
    """The file."""
    documents = {name: read(write_json(value)) for name, value in VALUES.items()}
    documents |= {f"{levels} lists deep": read(write_json(deep(levels))) for levels in (39, 40, 41)}
    documents |= texts() | {
        name: DOCUMENTS[name]() for name in ("issues", "one_issue", "file_tree", "python_repr", "log")
    }
    parts: list[str] = []
    for name, document in documents.items():
        parts.append(f"=== {name}")
        parts.extend(f"--- in {room} characters\n{truncate(document, room)}" for room in ROOMS)
    trace = "Cannot read the file\n" + "  in some function\n" * 60 + "PermissionError: it is locked"
    parts.extend(f"=== an error in {room} characters\n{shorten_error(trace, room)}" for room in ROOMS)
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("python -m support.truncate_examples --write")
    FILE.write_text(examples(), encoding="utf-8")
