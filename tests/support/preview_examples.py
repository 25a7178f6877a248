"""Documents, and what their previews say: the examples of `tests/results/preview/examples`.

Each file there has the headline of one document and its previews in rooms of several sizes. Whoever changes what
previews say writes them anew with `PYTHONPATH=tests python -m support.preview_examples --write`, and reads the
difference: what it says must be true of the document, and worth more than what it displaces.
"""

import hashlib
import json
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from mcpbridge.results.document import Document, read
from mcpbridge.results.exact_json import write_json
from mcpbridge.results.preview.preview import headline, preview, sections_of
from support.preview_columns import COLUMNS
from support.preview_shapes import SHAPES

FOLDER = Path(__file__).parents[1] / "results" / "preview" / "examples"

ROOMS = (150, 350, 700, 1100, 1860, 4000)
"""Characters; 1860 is about what a preview has by default."""


def issues() -> Any:
    """Issues of a code host: nested people, labels in lists, times, addresses that follow from numbers."""
    draw = Random(1)
    people = [("anna", 51), ("bo.li", 7), ("chris-w", 390), ("dmitri", 88)]
    rows: list[dict[str, Any]] = []
    for place in range(64):
        login, number = people[draw.choice([0, 0, 0, 1, 1, 2, 3])]
        is_open = draw.random() < 0.7
        rows.append(
            {
                "url": f"https://api.example/repos/acme/tool/issues/{900 - place * 3}",
                "node_id": hashlib.sha1(b"%d" % place).hexdigest()[:26],
                "number": 900 - place * 3,
                "title": draw.choice(["Fix", "Add", "Docs:", "Crash in"]) + f" part {place} of the parser",
                "user": {"login": login, "id": number, "type": "User", "avatar": f"https://a.example/{number}.png"},
                "labels": [
                    {"name": name, "color": color}
                    for name, color in (("bug", "ff0000"), ("docs", "00ff00"), ("help wanted", "0000ff"))
                    if draw.random() < 0.35
                ],
                "state": "open" if is_open else "closed",
                "locked": False,
                "comments": int(draw.random() ** 4 * 60),
                "created_at": f"2026-0{1 + place % 9}-{1 + place % 28:02d}T08:00:{place % 60:02d}Z",
                "closed_at": None if is_open else f"2026-10-{1 + place % 28:02d}T09:30:00Z",
                "milestone": {"title": "v2", "due_on": ""} if place % 9 == 0 else None,
                "body": "It fails. " * (1 + place % 30),
                **({"draft": True} if place % 8 == 0 else {}),
            }
        )
    return rows


def orders() -> Any:
    """Sales: money as decimals and as strings, two categories and a flag, a rate, one customer in many rows."""
    draw = Random(2)
    return {
        "total_count": 90,
        "page": 1,
        "orders": [
            {
                "id": 10**17 + place * 13,
                "customer": f"Customer {draw.randrange(25)}",
                "region": draw.choice(["eu", "eu", "us", "asia"]),
                "status": draw.choice(["paid", "paid", "paid", "open", "refunded"]),
                "amount": Decimal(draw.randrange(100, 90000)) / 100,
                "tax": f"{draw.randrange(1, 900) / 100:.2f}",
                "discount_rate": Decimal(draw.randrange(0, 40)) / 100,
                "items_count": draw.choice([1, 1, 1, 2, 3]),
                "gift": draw.random() < 0.1,
                "currency": "EUR",
                "note": "" if draw.random() < 0.8 else "Please ring twice, and leave it with the neighbour.",
            }
            for place in range(90)
        ],
        "next": None,
    }


def pods() -> Any:
    """Objects of a cluster: most of them alike, a few that do not run."""
    draw = Random(3)
    items: list[dict[str, Any]] = []
    for place in range(45):
        phase = "Running" if place not in (7, 19, 31) else ("Pending", "Failed", "Failed")[place % 3]
        items.append(
            {
                "metadata": {
                    "name": f"web-{draw.randrange(16**6):06x}",
                    "namespace": ("default", "kube-system", "shop")[place % 3],
                    "uid": f"{draw.randrange(16**12):012x}-{draw.randrange(16**12):012x}",
                    "labels": {"app": ("web", "db")[place % 2], "app.kubernetes.io/name": "shop"},
                    "resourceVersion": str(draw.randrange(10**6)),
                },
                "spec": {
                    "nodeName": f"node-{place % 4}",
                    "containers": [
                        {"name": "main", "image": f"shop/web:1.{place % 3}", "ports": [{"containerPort": 8080}]}
                    ]
                    + ([{"name": "proxy", "image": "envoy:1.30", "ports": []}] if place % 2 else []),
                },
                "status": {
                    "phase": phase,
                    "podIP": f"10.0.{place % 4}.{place}",
                    "restartCount": 0 if place % 11 else place + 1,
                    "startTime": 1780000000 + place * 3600,
                },
            }
        )
    return {"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "88123"}, "items": items}


def metrics() -> Any:
    """Series of points in time, written as a monitoring system does: a number and a string."""
    draw = Random(4)
    return {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [
                {
                    "metric": {"__name__": "cpu_usage", "instance": f"host-{place}:9100", "job": "node"},
                    "values": [[1780000000 + 60 * step, f"{draw.uniform(0, 90):.2f}"] for step in range(30)],
                }
                for place in range(6)
            ],
        },
    }


def sensors() -> Any:
    """Numbers of all sorts: negative, rates, counts with one value in most rows, lists of numbers, none for some."""
    draw = Random(5)
    return [
        {
            "sensor": f"SN-{1000 + place * 10}",
            "temperature": Decimal(draw.randrange(-150, 320)) / 10,
            "humidity": draw.randrange(20, 95),
            "errors": 0 if draw.random() < 0.8 else draw.randrange(1, 900),
            "floor": draw.randrange(1, 5),
            "history": [draw.randrange(100) for _ in range(12)],
            "last_seen": 1780000000000 + place * 61_000,
            "battery": None if place % 7 == 0 else Decimal(draw.randrange(300, 420)) / 100,
        }
        for place in range(40)
    ]


def users_by_id() -> Any:
    """An object whose names are data, within another that has plain fields."""
    draw = Random(6)
    return {
        "generated": "2026-11-02T10:00:00Z",
        "region": "eu-west-1",
        "limits": {"daily": 1000, "burst": {"size": 20, "seconds": Decimal("1.5")}},
        "users": {
            f"u-{place * 7919 % 4096:03x}": {
                "role": draw.choice(["admin", "member", "member", "guest"]),
                "email": f"user{place}@x.example",
                "mb": draw.randrange(5000),
                "teams": draw.sample(["red", "green", "blue"], draw.randrange(3)),
            }
            for place in range(36)
        },
    }


def api_description() -> Any:
    """An OpenAPI document: maps in maps, methods under paths."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "7", "description": "Orders and people of a shop. " * 12},
        "paths": {
            f"/v1/{name}/{{id}}": {
                method: {
                    "operationId": f"{method}_{name}",
                    "tags": [name],
                    "deprecated": method == "put",
                    "parameters": [{"name": "id", "in": "path", "required": True}],
                    "responses": {"200": {"description": "fine"}, "404": {"description": "there is none"}},
                }
                for method in ("get", "put", "post", "delete")[: 2 + place % 3]
            }
            for place, name in enumerate(["users", "orders", "items", "invoices", "carts", "events", "teams", "keys"])
        },
    }


def file_tree() -> Any:
    """A tree of folders and files."""
    draw = Random(7)

    def below(depth: int, path: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        for place in range(draw.randrange(2, 6)):
            if depth and draw.random() < 0.45:
                name = f"{draw.choice(['src', 'lib', 'docs', 'test'])}{place}"
                entries.append({"name": name, "type": "directory", "children": below(depth - 1, f"{path}/{name}")})
            else:
                name = f"{draw.choice(['main', 'index', 'notes'])}{place}.{draw.choice(['py', 'md', 'json'])}"
                entries.append({"name": name, "type": "file", "size": draw.randrange(20000)})
        return entries

    return below(4, "")


def one_tree() -> Any:
    """A tree with one root, as a page's elements are written; nodes without a text of their own."""
    return {
        "title": "Window",
        "role": "window",
        "nodes": [
            {
                "title": f"Group {group}",
                "role": "group",
                "nodes": [{"title": f"Button {group}.{place}", "role": "button"} for place in range(1 + group)],
            }
            for group in range(5)
        ],
    }


def graph() -> Any:
    """Two tables of about the same weight."""
    draw = Random(8)
    return {
        "nodes": [
            {"name": f"service-{place}", "kind": draw.choice(["http", "queue", "db"]), "replicas": draw.randrange(1, 9)}
            for place in range(30)
        ],
        "edges": [
            {
                "from": f"service-{draw.randrange(30)}",
                "to": f"service-{draw.randrange(30)}",
                "calls": draw.randrange(9999),
            }
            for _ in range(48)
        ],
        "warnings": ["service-3 is slow", "service-9 has no owner"],
    }


def commits() -> Any:
    """Hashes, texts that begin with few words, people told twice, files with their endings."""
    draw = Random(9)
    return [
        {
            "sha": hashlib.sha1(b"c%d" % place).hexdigest(),
            "message": f"{draw.choice(['fix', 'feat', 'docs', 'test'])}: {draw.choice(['parser', 'lexer'])} {place}\n\n"
            + "More of it. " * (place % 9),
            "author": {"name": (name := draw.choice(["Ada", "Bob", "Cy"])), "email": f"{name.lower()}@x.example"},
            "files": [
                f"src/{draw.choice('abc')}/m{draw.randrange(99)}.{draw.choice(['py', 'py', 'ts'])}"
                for _ in range(place % 4)
            ],
            "additions": draw.randrange(400),
            "deletions": draw.randrange(200),
            "verified": place % 13 != 0,
            "html_url": f"https://git.example/acme/tool/commit/{hashlib.sha1(b'c%d' % place).hexdigest()}",
        }
        for place in range(50)
    ]


def one_issue() -> Any:
    """One object with plain fields, two long texts and a short list."""
    return {
        "number": 4711,
        "title": "Previews of single objects",
        "state": "open",
        "user": {"login": "anna", "id": 51, "site_admin": False},
        "labels": ["bug", "docs"],
        "assignees": [],
        "milestone": None,
        "body": "Steps to reproduce: " + " ".join(f"step {place}." for place in range(120)) + " The end of the body.",
        "reactions": {"+1": 3, "-1": 0, "laugh": 1},
        "history": [{"note": "Opened by hand, " + "and looked at again, " * 20 + "and then left."}],
        "quote": ['He said: "no", ' + "then nothing more for a while; " * 8],
    }


def mixed_values() -> Any:
    """Fields of several types, nested lists, members that are there in some rows only."""
    return [
        {
            "id": place,
            "value": (place, str(place), None, Decimal("2.5"), [place, place], {"a": place})[place % 6],
            "matrix": [[place, 1], [2, 3]],
            "deep": {"a": {"b": {"c": [[{"d": place % 3}]]}}},
            **({"extra": {"code": f"E{place}", "text": "odd"}} if place % 10 == 3 else {}),
            "empty": "",
            "nothing": None,
            "tags": ["x"] * (place % 3),
        }
        for place in range(25)
    ]


def table_of_lists() -> Any:
    """Rows that are lists, with their names in the first."""
    draw = Random(10)
    return [
        ["day", "city", "visitors", "share"],
        *(
            [f"2026-{1 + place // 28:02d}-{1 + place % 28:02d}", draw.choice(["Lima", "Oslo"]), draw.randrange(900),
             Decimal(draw.randrange(100)) / 100]
            for place in range(70)
        ),
    ]  # fmt: skip


def coordinates() -> Any:
    """Lists of pairs without names."""
    return {
        "type": "LineString",
        "coordinates": [[7 + Decimal(place) / 64, 50 - Decimal(place) / 128] for place in range(40)],
    }


def words() -> Any:
    """A list of texts."""
    draw = Random(11)
    return [f"{draw.choice(['alpha', 'beta', 'gamma'])} {draw.randrange(30)}" for _ in range(60)]


def numbers() -> Any:
    """A list of numbers."""
    draw = Random(12)
    return [draw.randrange(-500, 5000) for _ in range(200)]


def few_rows() -> Any:
    """A small table, which is shown whole where there is room."""
    return [
        {
            "rank": place,
            "title": f"Result {place}: a page about {'tables' * (place % 3)}",
            "url": f"https://x.example/{place * 7919}",
            "score": Decimal(100 - 7 * place) / 128,
        }
        for place in range(9)
    ]


def addresses() -> Any:
    """Addresses of a few hosts, ports, versions, years: numbers that name something."""
    draw = Random(13)
    return [
        {
            "link": f"https://{draw.choice(['a.example', 'b.example', 'docs.example'])}/page/{place * 31}",
            "port": draw.choice([80, 443, 8080]),
            "year": draw.randrange(1990, 2026),
            "index": place,
            "parent_id": draw.randrange(10**6),
            "city": f"{draw.choice(['Lima', 'Oslo', 'Quito'])}, district {draw.randrange(12)}",
        }
        for place in range(56)
    ]


def wide() -> Any:
    """More fields than there is room for."""
    return [
        {f"measure_{name}": place * name % 17 for name in range(60)} | {"name": f"row {place}"} for place in range(12)
    ]


def sparse() -> Any:
    """Names that are data, in each row others."""
    return [
        {"id": f"s{place}", "scores": {f"k{place * 7 + step}": step for step in range(3)}, "quota": {"a": 1}}
        for place in range(40)
    ]


def many_parts() -> Any:
    """More tables than are described."""
    parts = {
        f"part_{place}": [{"n": step * place, "kind": "ab"[step % 2]} for step in range(3 + place * 7 % 30)]
        for place in range(30)
    }
    return {"about": "thirty parts", **parts}


def hashes_by_path() -> Any:
    """A flat map of long ids."""
    return {f"src/{place // 10}/file{place}.py": hashlib.sha256(b"%d" % place).hexdigest() for place in range(40)}


def deep_rows() -> Any:
    """Rows that can only be shown as JSON: nothing tells them apart."""
    return [{"group": {"members": [{"deep": {"er": [1, 2, 3, 4, 5]}}] * 2}, "text": "same " * 30}] * 7


CSV = "\n".join(["date,name,amount"] + [f"2026-01-{1 + place % 28:02d},\"item, {place}\",{place * 3}.5"
                                        for place in range(50)])  # fmt: skip
LINES = "\n".join(json.dumps({"level": ("info", "warn", "info", "error")[place % 4], "ms": place * 37 % 101})
                  for place in range(40))  # fmt: skip
MARKDOWN = "\n".join(["| name | size |", "|---|---|", *(f"| file{place} | {place * 7} |" for place in range(30))])

DOCUMENTS: dict[str, Callable[[], Document]] = {
    made.__name__: (lambda made=made: read(write_json(made())))
    for made in (
        issues, orders, pods, metrics, sensors, users_by_id, api_description, file_tree, one_tree, graph, commits,
        one_issue, mixed_values, table_of_lists, coordinates, words, numbers, few_rows, addresses, wide, sparse,
        many_parts, hashes_by_path, deep_rows,
    )
} | {
    "csv": lambda: read(CSV),
    "ndjson": lambda: read(LINES),
    "markdown_table": lambda: read(MARKDOWN),
    "python_repr": lambda: read(repr([{"a": place, "b": None, "c": float("inf") if place % 5 == 0 else place / 4}
                                      for place in range(20)])),
    "log": lambda: read("\n".join(
        f"2026-01-02T03:{at // 60:02d}:{at % 60:02d}Z {('INFO', 'INFO', 'WARN', 'ERROR')[at * 7 % 4]} [svc-{at % 3}] "
        f"request {at} took {at * 37 % 900} ms" for at in range(120)) + "\n"),
    "listing": lambda: read("\n".join(f"src/{'abc'[at % 3]}/file{at}.{('py', 'md')[at % 2]}" for at in range(60))),
    "diff": lambda: read("\n".join(
        f"diff --git a/f{at}.py b/f{at}.py\n--- a/f{at}.py\n+++ b/f{at}.py\n@@ -1,3 +1,3 @@ def f{at}():\n"
        f"     one = {at}\n-    two = {at}\n+    two = {at + 1}\n     return one" for at in range(9)) + "\n"),
    "markdown": lambda: read("\n".join(
        f"## Part {at}\n\nWhat part {at} says of [things](https://x.example/{at}).\n\n- one\n- two {at}\n"
        for at in range(20))),
    "html": lambda: read("<!doctype html><html><head><title>Shop</title></head><body><h1>Things</h1>" + "".join(
        f"<h2>Thing {at}</h2><p>It costs {at * 3}.</p><a href='/thing/{at}'>more of {at}</a>" for at in range(30))
        + "</body></html>"),
    "prose": lambda: read(" ".join(f"Sentence {at} says that nothing else is known of it." for at in range(90)) + "\n"),
    "one_line": lambda: read("word " * 400),
    "around": lambda: read(f"Found 30 of 312 rows:\n{json.dumps([{'n': at} for at in range(30)])}\n(page 1 of 7)"),
}  # fmt: skip


COLUMNS_FILE, SHAPES_FILE = "single columns", "shapes"


def shapes_example() -> str:
    """The file of small values of many shapes: how each is taken apart."""
    parts: list[str] = []
    for title, value in SHAPES.items():
        parts.append(f"=== {title}")
        lines = all_that_is_known(read(write_json(value)).value)
        parts.extend([*(line[:400] for line in lines[:12]), f"and {len(lines)} lines in all"])
    return "\n".join(parts) + "\n"


def example(document: Document) -> str:
    """The file of a document. A line that stands in the preview of the next smaller room, too, is indented there."""
    parts, before = [headline(document)], set[str]()
    for room in ROOMS:
        lines = preview(document, room).split("\n")
        parts.append(f"--- in {room} characters")
        parts.extend(f"  {line[:60]}" if line in before else line for line in lines)
        before = set(lines)
    if isinstance(document.value, (dict, list)):
        parts.extend(all_that_is_known(document.value))
    return "\n".join(parts) + "\n"


def all_that_is_known(value: Any) -> list[str]:
    """All that could be said of a value, in any room, and what each is worth."""
    parts: list[str] = []
    for section in sections_of(value):
        parts.append(f"--- all that is known of {section.title or 'the plain fields'}, weight {section.weight:g}")
        for line in section.lines:
            facts = [f"{fact.worth:.3g} {'(with that before) ' * fact.joint}{fact.text}" for fact in line.facts]
            parts.append(f"{line.title}: " + " ¦ ".join(facts))
        if section.rows is not None:
            shown = (f"{profile.path or 'values'} {worth:.3g}" for profile, worth in section.rows.columns)
            parts.append(f"columns of rows: {', '.join(shown)}")
        parts.extend(
            f"field {one.path}:{one.type} {one.matter:.3g}{' = ' if one.always else ''}{one.always}"
            for one in section.fields
        )
    return parts


def columns_example() -> str:
    """The file of single columns: what is known of each."""
    parts: list[str] = []
    for title, rows in COLUMNS.items():
        parts.append(f"=== {title}")
        parts.extend(all_that_is_known(read(write_json(rows)).value)[1:])
    return "\n".join(parts) + "\n"


def main() -> None:
    """Write all files, and remove those of which there is no document any more."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.txt"):
        if path.stem not in {*DOCUMENTS, COLUMNS_FILE, SHAPES_FILE}:
            path.unlink()
    for name, made in DOCUMENTS.items():
        (FOLDER / f"{name}.txt").write_text(example(made()), encoding="utf-8")
    (FOLDER / f"{COLUMNS_FILE}.txt").write_text(columns_example(), encoding="utf-8")
    (FOLDER / f"{SHAPES_FILE}.txt").write_text(shapes_example(), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("python -m support.preview_examples --write")
    main()
