"""Small values of many shapes, each at an edge of what decides how it is taken apart, for `preview_examples.py`."""

from typing import Any


def nested(depth: int) -> Any:
    """A value in so many objects."""
    return {"in": nested(depth - 1)} if depth else 7


def some_names(count: int, *, of_data: int = 0) -> list[str]:
    """Names of members, so many of which look like data."""
    return [f"k{at}" if at < of_data else "name" + "abcdefghijklmnopqrstuvwxyz"[at] for at in range(count)]


def tagged_objects(count: int, *, of_data: int, alike: int, of: int) -> dict[str, Any]:
    """Objects by name, each with so many of `of` members, in turn."""
    members = ["alpha", "beta", "gamma", "delta", "eta"][:of]
    return {
        name: {members[(at + step) % of]: at for step in range(alike)}
        for at, name in enumerate(some_names(count, of_data=of_data))
    }


SHAPES: dict[str, Any] = {
    "as deep as is read": [{"id": at, "a": nested(10)} for at in range(3)],
    "deeper": [{"id": at, "a": nested(13)} for at in range(3)],
    "deep lists": [{"id": at, "a": [[[[[[[[[[[[at]]]]]]]]]]]]} for at in range(3)],
    "an object deeper than is read": nested(16),
    "objects and nulls": [{"a": {"b": 1}}, {"a": None}, {"a": {"b": 3}}],
    "objects and texts": [{"a": {"b": 1}}, {"a": "x"}, {"a": None}, {"a": [5]}, {"a": [6, 7]}],
    "forty names over all rows": [{"m": {f"k{at}": 1}} for at in range(40)],
    "forty-one names over all rows": [{"m": {f"k{at}": 1}} for at in range(41)],
    "forty-one names, most in each row": [
        {"m": {f"k{at}": row for at in range(41) if at != row}} for row in range(3)
    ],
    "forty-one names at the top": [{f"k{at}": 1} for at in range(41)],
    "some rows lack a member": [{"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"d": [1, 2]}, {"a": {"c": [3]}}],
    "lists of pairs": [{"p": [[at, 2], [3, 4]]} for at in range(4)],
    "lists of pairs of objects": [{"p": [[{"x": at}, 2], [{"x": 1}, 4]]} for at in range(4)],
    "lists of pairs with an object at the end": {"p": [[at, 2 if at != 60 else {"x": 1}] for at in range(70)]},
    "rows of 30": [[at * 7 % 5 for at in range(30)]] * 3,
    "rows of 31": [[at * 7 % 5 for at in range(31)]] * 3,
    "two rows": [[1, 2], [3, 4]],
    "rows of one": [[1], [2], [3]],
    "five in a list": {"tags": list("abcde")},
    "six in a list": {"tags": list("abcdef")},
    "objects without members in a list": {"tags": [{}, {}]},
    "lists in a list": {"tags": [[], ["x"]]},
    "one long text": {"t": ["x" * 101], "u": ["x" * 100], "v": ["x" * 101, "y"]},
    "one object in a list": {"t": [{"a": 1, "b": [{"c": 2}]}]},
    "names with marks": {"a b": 1, 'say "x"': {"y": 2, "z\nz": 3}, "n" * 81: 4, "n" * 80: 5, "": 6},
    "a tree by its names": [{"n": "a", "kids": [{"n": "b", "kids": []}]}, {"n": "c", "kids": []}],
    "a tree of leaves with fewer members": [{"n": "a", "t": 1, "kids": [{"n": "b", "t": 2}]}],
    "no tree: leaves of one member": [{"n": "a", "t": 1, "kids": [{"n": "b"}]}],
    "no tree: leaves with others": [{"n": "a", "t": 1, "kids": [{"n": "b", "t": 2, "u": 3}]}],
    "no tree: leaves with the same": [{"n": "a", "kids": [{"n": "b", "other": 1}]}],
    "a tree from the 200th row": [*({"n": f"{at}", "t": at} for at in range(199)),
                                  {"n": "a", "t": 1, "kids": [{"n": "b", "t": 2}]}],
    "no tree: from the 201st row": [*({"n": f"{at}", "t": at} for at in range(200)),
                                    {"n": "a", "t": 1, "kids": [{"n": "b", "t": 2}]}],
    "no tree: rows that are none": [1, {"n": "a", "t": 1, "kids": [{"n": "b", "t": 2}]}],
    "a tree without names": [{"t": at, "kids": [{"t": 1, "kids": []}] * at} for at in range(3)],
    "a tree called by another member": [
        {"t": at, "said": f"s{at}", "kids": [{"t": 1, "said": "x"}] * at} for at in range(3)
    ],
    "a tree with 41 at the top": [
        {"name": f"n{at}", "kids": [{"name": "x", "kids": []}] * (at % 2)} for at in range(41)
    ],
    "a tree with 40 below one": {"name": "root", "t": 1, "kids": [{"name": f"n{at}", "t": 2} for at in range(40)]},
    "a tree with 41 below one": {"name": "root", "t": 1, "kids": [{"name": f"n{at}", "t": 2} for at in range(41)]},
    "a large tree": [
        {"name": f"top{top}", "kids": [
            {"name": f"dir{at}", "kids": [{"name": f"leaf {'x' * at} {leaf}", "kids": []} for leaf in range(9)]}
            for at in range(9)
        ]}
        for top in range(3)
    ],
    "a map of objects": tagged_objects(4, of_data=0, alike=3, of=5),
    "no map: objects too different": tagged_objects(5, of_data=0, alike=2, of=5),
    "a map of three objects": tagged_objects(3, of_data=0, alike=4, of=5),
    "no map: three objects": tagged_objects(3, of_data=0, alike=3, of=5),
    "no map: two objects": tagged_objects(2, of_data=2, alike=1, of=1),
    "a map under data": tagged_objects(5, of_data=3, alike=1, of=5),
    "no map: under names": tagged_objects(5, of_data=2, alike=1, of=5),
    "objects without members under data": {f"k{at}": {} for at in range(4)},
    "objects without members under names": {name: {} for name in some_names(4)},
    "three lists under data": {f"k{at}": [at, 1] for at in range(3)},
    "nine lists": {name: [1] for name in some_names(9)},
    "ten lists": {name: [1] for name in some_names(10)},
    "seven values under data": {f"k{at}": at * at for at in range(7)},
    "eight values under data": {f"k{at}": at * at for at in range(8)},
    "eight values and a null under data": {f"k{at}": at * at or None for at in range(9)},
    "values of two types under data": {f"k{at}": at * at if at % 2 else "x" for at in range(9)},
    "nineteen values": {name: at * at for at, name in enumerate(some_names(19))},
    "twenty values": {name: at * at for at, name in enumerate(some_names(20))},
    "methods": [{name: {"a": at, "b": 1} for name in ("get", "put", "post", "delete")} for at in range(3)],
    "three methods": [{name: {"a": at, "b": 1} for name in ("get", "put", "post")} for at in range(3)],
    "methods of other shapes": [{name: {name: at, "b": 1, "c": 2} for name in ("get", "put", "post", "delete")}
                                for at in range(3)],
    "methods of two shapes": [
        {name: {"a" if name < "h" else "c": at, "b": 1} for name in ("get", "put", "post", "delete")}
        for at in range(3)
    ],
    "methods and a text in the 51st row": [
        {name: {"a": at, "b": 1} if at < 51 else "x" for name in ("get", "put", "post", "delete")} for at in range(52)
    ],
    "more columns than are looked at": [{f"k{at}": at for at in range(310)}] * 2,
    "some more columns, not in all rows": [{f"k{at}": at for at in range(310)}, {"other": 1}],
}  # fmt: skip
