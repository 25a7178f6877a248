"""Write what the documentation says of `--json` from the types in `app/cli/json_formats/`.

    python scripts/json_reference.py            write docs/reference/json.md and json.schema.json
    python scripts/json_reference.py --check    exit with 1 if they are not what would be written

Each format of the table has a heading and a table of its fields; what several formats have in them has one as well.
"""

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from mcpbridge.app.cli import json_formats
from mcpbridge.app.cli.commands import COMMANDS
from mcpbridge.app.cli.json_formats.formats import FORMATS, LINES, WITHOUT

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/json.md"
SCHEMA = ROOT / "docs/reference/json.schema.json"

HEAD = """\
# JSON output

With `--json` a command prints one JSON document to standard output and nothing else. This page describes each document.
Programs can check them with [a JSON Schema](json.schema.json). Both are written from the code, and the tests compare
what the commands print with them.

```console
$ mcpbridge search 'switch branches' --limit 1 --json
{"format": "search/1", "query": "switch branches", …
```

- **`format`** comes first in each document: the name of the command, and the version of the document. The version goes
  up when a field goes, or means something else; the changelog says so. New fields come without a new version, so ignore
  fields that you do not know.
- **On a terminal** the document is indented. In a pipe it is one line.
- **Exit codes** are the same with and without `--json`: [commands](commands.md#commands).
- **If a command fails**, standard output is empty, and standard error has one line in the format [error/1](#error1).
  Warnings before it begin with `mcpbridge:`. A command that looks for faults, such as `check`, prints its document and
  ends with its exit code.
- **Many documents**: {lines} print one document on each line.
- `mcpbridge call --raw` prints the server's result and nothing of the bridge, so it has no `format`.

Commands without `--json`:

| command | why |
|---|---|
{without}

The HTTP API has documents of its own: [administration](admin.md).
"""

_SIMPLE: Mapping[Any, tuple[str, str]] = {
    str: ("text", "string"),
    int: ("integer", "integer"),
    float: ("number", "number"),
    bool: ("true or false", "boolean"),
    NoneType: ("null", "null"),
}
"""By type: what it is called on the page, and in JSON Schema."""


def main() -> int:
    """Write both files, or compare them."""
    files = {PAGE: page(), SCHEMA: json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"}
    stale = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not up to date: run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        path.write_text(files[path], "utf-8")
    return 0


# -- what the types say


@cache
def sources() -> Mapping[str, ast.ClassDef]:
    """The definition of each type, by name."""
    folder = Path(next(iter(json_formats.__path__)))
    parsed = [ast.parse(path.read_text("utf-8")) for path in sorted(folder.glob("*.py"))]
    return {one.name: one for module in parsed for one in module.body if isinstance(one, ast.ClassDef)}


def docstrings(name: str) -> dict[str, str]:
    """What is below each field in the source, those of its bases included."""
    source = sources().get(name)
    if source is None:  # it has no fields of this kind
        return {}
    found: dict[str, str] = {}
    for base in source.bases:
        found |= docstrings(ast.unparse(base))
    for field, text in zip(source.body, source.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[ast.unparse(field.target)] = str(text.value.value)
    return found


class Field:
    """A field of a document."""

    def __init__(self, owner: type, name: str, kind: Any) -> None:
        while get_origin(kind) in (NotRequired, Required):
            (kind,) = get_args(kind)
        text = docstrings(owner.__name__).get(name, "")
        if get_origin(kind) is Annotated:
            kind, text = get_args(kind)
        self.name, self.kind, self.text = name, kind, text
        self.is_required = name in getattr(owner, "__required_keys__")  # noqa: B009 - not known to type checkers


def fields(document: type) -> list[Field]:
    """The fields of a document, in their order."""
    return [Field(document, name, kind) for name, kind in get_type_hints(document, include_extras=True).items()]


def parts(document: type) -> Iterator[type]:
    """The types in the fields of a document, each once."""
    seen: list[type] = []

    def look(kind: Any) -> None:
        if is_typeddict(kind):
            if kind not in seen:
                seen.append(kind)
                for field in fields(kind):
                    look(field.kind)
        else:
            for inner in get_args(kind):
                look(inner)

    for field in fields(document):
        look(field.kind)
    yield from seen


def all_parts() -> list[type]:
    """What documents have in them, by name."""
    found = {part.__name__: part for document in FORMATS.values() for part in parts(document)}
    return [found[name] for name in sorted(found, key=str.lower)]


# -- the page


def page() -> str:
    """The page as it should be."""
    without = "\n".join(f"| `{name}` | {why} |" for name, why in WITHOUT.items() if name in COMMANDS)
    lines = ", ".join(f"[{one}](#{_anchor(one)})" for one in LINES)
    text = HEAD.replace("{lines}", lines).replace("{without}", without)
    for name, document in FORMATS.items():
        text += f"\n## {name}\n\n{document.__doc__}\n\n{table(document)}"
    text += "\n## Parts of documents\n\nEach is named in the documents that have it.\n"
    for part in all_parts():
        text += f"\n### {part.__name__}\n\n{part.__doc__}\n\n{table(part)}"
    return text


def _anchor(heading: str) -> str:
    return heading.lower().replace("/", "")


def table(document: type) -> str:
    """The fields of a document."""
    rows = ["| field | type | |", "|---|---|---|"]
    for field in fields(document):
        optional = "" if field.is_required else ", may be missing"
        rows.append(f"| `{field.name}` | {kind_text(field.kind)}{optional} | {field.text} |")
    return "\n".join(rows) + "\n"


def kind_text(kind: Any) -> str:
    """A type as the page names it."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _SIMPLE:
        return _SIMPLE[kind][0]
    if origin is list:
        return "list" if inner == (Any,) else f"list of {kind_text(inner[0])}"
    if origin is dict:
        return "object" if inner[1] is Any else f"object of {kind_text(inner[1])}"
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (Union, UnionType):
        return " or ".join(kind_text(one) for one in inner)
    if is_typeddict(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    assert kind is Any, kind
    return "any value"


# -- the schema


def schema() -> dict[str, Any]:
    """JSON Schema of every document, by its format."""
    documents: list[dict[str, Any]] = []
    for name, document in FORMATS.items():
        made = object_schema(document)
        made["properties"] = {"format": {"const": name}, **made["properties"]}
        documents.append({"title": name, **made, "required": ["format", *made["required"]]})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What commands of mcpbridge print with --json",
        "oneOf": documents,
        "$defs": {part.__name__: object_schema(part) for part in all_parts()},
    }


def object_schema(document: type) -> dict[str, Any]:
    """A document or a part of one. New fields may come, so others than these are allowed."""
    known = fields(document)
    return {
        "description": document.__doc__,
        "type": "object",
        "properties": {one.name: {"description": one.text, **kind_schema(one.kind)} for one in known},
        "required": [one.name for one in known if one.is_required],
    }


def kind_schema(kind: Any) -> dict[str, Any]:
    """A type as JSON Schema."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind][1]}
    if origin is list:
        return {"type": "array", "items": kind_schema(inner[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": kind_schema(inner[1])}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, UnionType):
        return {"anyOf": [kind_schema(one) for one in inner]}
    return {"$ref": f"#/$defs/{kind.__name__}"} if is_typeddict(kind) else {}


if __name__ == "__main__":
    sys.exit(main())
