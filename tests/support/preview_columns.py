"""Columns, each at an edge of what decides what previews say of it, for `preview_examples.py`."""

import hashlib
from decimal import Decimal
from typing import Any


def column(path: str, values: list[Any], *beside: str) -> list[Any]:
    """Rows with this column, and perhaps with one that names the rows."""
    return [
        {path: value, **{name: f"{name} {'abc'[at % 3]}{at}" for name in beside}} for at, value in enumerate(values)
    ]


def spread(*times: int) -> list[int]:
    """0 so many times, 1 so many times, and so on."""
    return [value for value, count in enumerate(times) for _ in range(count)]


def names(*times: int, form: str = "n{}") -> list[str]:
    """The same with names."""
    return [form.format(value) for value in spread(*times)]


COLUMNS: dict[str, list[Any]] = {
    "two states": column("state", names(5, 3)),
    "three states": column("state", names(5, 3, 2)),
    "eight states": column("state", names(*[2] * 8)),
    "nine states": column("state", names(*[2] * 9)),
    "twelve values, each but one once": column("state", names(2, *[1] * 11)),
    "twelve values": column("state", names(*[2] * 12)),
    "thirteen values": column("state", names(*[2] * 13)),
    "thirteen values, one of them in a tenth": column("state", names(3, *[2] * 12, 3)),
    "many values, one in just a tenth": column("kind", names(5, *[2] * 20, *[1] * 5)),
    "many values, one in less than a tenth": column("kind", names(4, *[2] * 20, *[1] * 5)),
    "many values, one in just a twentieth": column("kind", names(3, *[2] * 28, 1)),
    "many values, one in less than a twentieth": column("kind", names(3, *[2] * 29, 1)),
    "many values, each twice": column("kind", names(*[2] * 40)),
    "names of numbers": column("port", [80, 443, 8080] * 6),
    "two names of numbers": column("port", [80, 443] * 6),
    "thirty names of numbers": column("port", spread(*[3] * 30)),
    "thirty-one names of numbers": column("port", spread(*[3] * 31)),
    "names of numbers, not a third": column("port", spread(3, 3, 3, 2)),
    "names of numbers, all different": column("port", [5, 900, 17, 42, 8]),
    "numbers at a third": column("amount", spread(4, *[1] * 8)),
    "numbers below a third": column("amount", spread(4, *[1] * 9)),
    "few numbers, half of them different": column("amount", spread(2, 2, 2)),
    "few numbers, more than half of them different": column("amount", spread(2, 2, 1)),
    "eight numbers": column("amount", spread(*[2] * 8)),
    "nine numbers": column("amount", spread(*[2] * 9)),
    "one number": column("amount", [7, None, None]),
    "numbers below zero": column("amount", [-5, 3, 4, 900]),
    "numbers from zero": column("amount", [0, 3, 4, 900]),
    "rates": column("score", [5, 3, 4, 900]),
    "rates by their words": column("cpuUsage", [5, 3, 4, 900]),
    "money": column("totalPrice", [Decimal("5.10"), Decimal("3.05"), Decimal(4), Decimal(900)]),
    "decimal texts": column("cost", ["5.10", "3.05", "4.00", "-900.00"]),
    "decimal texts and one that is none": column("cost", ["5.10", "3.05", "4", "-900.00"]),
    "seconds": column("created", [1780000000, 1780003600, 1780000060]),
    "seconds as decimals": column("created", ["1780000000.5", "1780003600.5", "1780000060.5"]),
    "decimals out of the range of times": column("created", ["999999999.5", "1780003600.5", "1780000060.5"]),
    "decimals above the range of times": column("created", ["2000000000.5", "1780003600.5", "1780000060.5"]),
    "milliseconds": column("lastSeen", [1780000000000, 1780000060000, 1780003600000]),
    "milliseconds down": column("lastSeen", [1780003600000, 1780000060000, 1780000000000]),
    "milliseconds, no order": column("lastSeen", [1780003600000, 1780000000000, 1780000060000]),
    "numbers at the ends of times": column("at", [10**9, 11 * 10**8]),
    "numbers before times": column("at", [10**9 - 1, 11 * 10**8]),
    "numbers at the last times": column("at", [19 * 10**8, 2 * 10**9]),
    "numbers after times": column("at", [19 * 10**8, 2 * 10**9 + 1]),
    "milliseconds at the ends of times": column("at", [10**12, 11 * 10**11]),
    "milliseconds before times": column("at", [10**12 - 1, 11 * 10**11]),
    "milliseconds at the last times": column("at", [19 * 10**11, 2 * 10**12]),
    "milliseconds after times": column("at", [19 * 10**11, 2 * 10**12 + 1]),
    "times too far apart": column("at", [15 * 10**8, 19 * 10**8]),
    "two rising numbers in the range of times": column("size", [1780000000, 1780003600]),
    "three rising numbers in the range of times": column("size", [1780000000, 1780003600, 1780003600]),
    "counted up": column("n", [1001, 1002, 1004, 1005]),
    "counted down": column("n", [1005, 1004, 1002, 1001]),
    "counted up, three": column("n", [1001, 1002, 1004]),
    "counted up by twenty": column("n", [0, 1, 2, 80]),
    "counted up by more than twenty": column("n", [0, 1, 2, 81]),
    "counted up from below zero": column("n", [-1, 1, 2, 3]),
    "dates": column("day", ["2026-01-02", "2026-01", "2026-03-04T05:06:07.891+02:00"]),
    "dates and one that is none": column("day", ["2026-01-02", "2026-01", "soon"]),
    "hosts of addresses": column("link", [f"https://h{at % 3}.example/{at}" for at in range(9)]),
    "one host": column("link", [f"https://h.example/{at}" for at in range(9)]),
    "two hosts": column("link", [f"https://h{at % 2}.example/{at // 2}" for at in range(36)]),
    "thirty hosts": column("link", [f"https://h{at % 30}.example/{at}" for at in range(61)]),
    "thirty-one hosts": column("link", [f"https://h{at % 31}.example/{at}" for at in range(63)]),
    "hosts, half as many as addresses": column("link", [f"https://h{at % 5}.example/{at}" for at in range(10)]),
    "addresses with nothing behind": column("link", [f"mailto://h{at % 2}" for at in range(20)]),
    "few addresses": column("link", [f"https://h.example/{at % 4}" for at in range(8)]),
    "eight addresses of fifteen": column("link", [f"https://h.example/{at % 8}" for at in range(15)]),
    "first words": column("title", [f"{('Fix', 'Add')[at % 2]} the {at} thing" for at in range(8)]),
    "first words of seven texts": column("title", [f"{('Fix', 'Add')[at % 2]} the {at} thing" for at in range(7)]),
    "one first word": column("title", [f"Fix the {at} thing" for at in range(8)]),
    "ten first words": column("title", [f"Word{'abcdefghij'[at % 10]} in {at}" for at in range(30)]),
    "eleven first words": column("title", [f"Word{'abcdefghijk'[at % 11]} in {at}" for at in range(33)]),
    "first words, just a third": column("title", [f"Word{'abc'[at % 3]} in {at}" for at in range(9)]),
    "first words, more than a third": column("title", [f"Word{'abc'[at % 3]} in {at}" for at in range(8)]),
    "first words of just six in ten": column(
        "title", [f"{('Fix', 'Add', '(x')[(0, 0, 0, 1, 1, 1, 2, 2, 2, 2)[at]]} the {at} thing" for at in range(10)]
    ),
    "first words of less than six in ten": column(
        "title", [f"{('Fix', 'Add', '(x')[(0, 0, 0, 1, 1, 2, 2, 2, 2, 2)[at]]} the {at} thing" for at in range(10)]
    ),
    "names of files": column("file", [f"f{at}.{('py', 'md')[at % 2]}" for at in range(8)]),
    "three names of files": column("file", [f"f{at}.{('py', 'md')[at % 2]}" for at in range(3)]),
    "names of files, just a third": column("file", [f"f{at}" + (".py" if at % 3 == 0 else "") for at in range(12)]),
    "names of files, less than a third": column(
        "file", [f"f{at}" + (".py" if at % 3 == 0 else "") for at in range(11)]
    ),
    "names of files, three endings": column("file", [f"f{at}" + (".py" if at < 3 else "") for at in range(6)]),
    "twenty-four endings": column("file", [f"f{at}.{'abcdefghijklmnopqrstuvwx'[at % 24]}" for at in range(48)]),
    "twenty-five endings": column("file", [f"f{at}.{'abcdefghijklmnopqrstuvwxy'[at % 25]}" for at in range(50)]),
    "names of files, each several times": column("file", names(*[2] * 20, form="f{}.py")),
    "ids of one length": column("serial", [f"SN-{at}" for at in range(10, 30)]),
    "ids of several lengths": column("serial", [f"SN-{at}" for at in range(20)]),
    "ids of 24 characters": column("serial", [f"SN-{at:021}" for at in range(9)]),
    "ids of 25 characters": column("serial", [f"SN-{at:022}" for at in range(9)]),
    "ids of two beginnings": column("serial", [f"{'AB'[at % 2]}-{at}" for at in range(10, 20)]),
    "ids that end in a letter": column("serial", [f"{at}-x" for at in range(10, 20)]),
    "texts of one sort": column("note", [f"a text that has {at} words and more" for at in range(6)]),
    "a text that stands several times": column("note", [f"a text, {at // 2}" + " and more" * 12 for at in range(9)]),
    "texts of 100 characters": column("note", [f"{at} " + "x y" * 33 for at in range(6)] + ["short one"]),
    "texts of 103 characters": column("note", [f"{at} " + "x y" * 34 for at in range(6)] + ["short one"]),
    "some are null": column("v", [1, None, 3, None, 9]),
    "some are empty": column("v", ["a", "", "b", "", "a", "a"]),
    "some are null, others empty": column("v", ["a", "", "b", None, "a", "a"]),
    "all are null": column("v", [None] * 4),
    "all are empty": column("v", [""] * 4),
    "all are null or empty": column("v", ["", None] * 2),
    "flags": column("on", [True, False, True]),
    "always true": column("on", [True] * 3),
    "a constant": column("kind", ["Pod"] * 5),
    "a constant number": column("kind", [7] * 5),
    "a constant that is missing once": [{"kind": "Pod"}, {"kind": "Pod"}, {"other": 1}],
    "one row": column("kind", ["Pod"]),
    "mixed": column("v", [1, "1", 2, "2", True, None]),
    "mixed with decimals": column("v", [1, Decimal("2.5"), "x"]),
    "a state that one row is not in": column("state", ["ok"] * 9 + ["bad"], "name"),
    "a kind that one row is not of": column("sort", ["ok"] * 9 + ["bad"], "name"),
    "a state that four in ten are not in": column("state", ["ok"] * 6 + ["bad"] * 3 + ["odd"], "name"),
    "a state that more are not in": column("state", ["ok"] * 5 + ["bad"] * 3 + ["odd"], "name"),
    "a state of sixteen rows": column("state", ["ok"] * 60 + ["bad"] * 16, "name"),
    "a state of seventeen rows": column("state", ["ok"] * 60 + ["bad"] * 17, "name"),
    "a state of four rows": column("state", ["ok"] * 3 + ["bad"], "name"),
    "a state of five rows": column("state", ["ok"] * 4 + ["bad"], "name"),
    "counts above zero": column("errors", [0] * 9 + [4], "name"),
    "the largest twice": column("size", [5, 9, 9, 2, 30, 30, 1, 1, 1], "name"),
    "the largest in three rows": column("size", [5, 9, 9, 2, 30, 30, 30, 1, 1], "name"),
    "names and their numbers": [{"login": f"u{at % 3}", "user_id": 50 + at % 3, "n": at * at} for at in range(12)],
    "groups and a sum": [{"team": "abc"[at % 3], "on": at % 2 == 0, "hours": at * at % 17} for at in range(24)],
    "groups and a rate": [{"team": "abc"[at % 3], "on": at % 2 == 0, "score": at * at % 17} for at in range(24)],
    "groups, a rate and a sum": [
        {"team": "abc"[at % 3], "load": at * at % 13, "hours": at * at % 17, "level": "xy"[at % 5 // 3]}
        for at in range(24)
    ],
    "eight groups": [{"team": "abcdefgh"[at % 8], "hours": at * at % 17} for at in range(24)],
    "nine groups": [{"team": "abcdefghi"[at % 9], "hours": at * at % 17} for at in range(27)],
    "twenty-four pairs": [{"team": "abcdefgh"[at % 8], "shift": "xyz"[at % 3], "hours": at * at} for at in range(48)],
    "twenty-eight pairs": [{"team": "abcdefg"[at % 7], "shift": "wxyz"[at % 4], "hours": at * at} for at in range(56)],
    "five groupings": [
        {name: f"{name}{at * factor % (2 + factor % 2)}" for factor, name in enumerate("abcde", 3)} | {"hours": at * at}
        for at in range(30)
    ],
    "lists of one length": column("tags", [["x", "y"]] * 4),
    "lists of one element": column("tags", [["x"], ["y"], ["x"]]),
    "lists of several lengths": column("tags", [["x", "y"], [], ["z"], []]),
    "series of eight points": column("history", [[at * 7 % 5 + step for step in range(8)] for at in range(4)], "name"),
    "series of seven points": column("history", [[at * 7 % 5 + step for step in range(7)] for at in range(4)], "name"),
    "half of the lists are series": column("history", [[1, 2, 3, 4, 5, 6, 7, 9], [1, 5]] * 2, "name"),
    "less than half of the lists are series": column("history", [[1, 2, 3, 4, 5, 6, 7, 9], [1, 5], [2]], "name"),
    "series with a point that is none": column(
        "history", [[1, 2, 3, 4, 5, 6, 7, 9], [1, 2, 3, 4, None, 6, 7, 9]] * 2, "name"
    ),
    "series of pairs": column("points", [[[step, at * step % 5] for step in range(9)] for at in range(3)], "name"),
    "series in lists": column(
        "runs", [[[step, at * step, 2, 3, 4, 5, 6, 7, 8] for step in range(2)] for at in range(4)]
    ),
    "series of flags": column("history", [[True, False] * 4] * 3, "name"),
    "series of texts": column("history", [[f"{at + step}.5" for step in range(8)] for at in range(4)], "name"),
    "series that begin with a long number": column(
        "history", [["1" * 40, *"23456789"], ["1" * 40, *"98765432"]], "name"
    ),
    "series that begin with a longer number": column(
        "history", [["1" * 41, *"23456789"], ["1" * 41, *"98765432"]], "name"
    ),
    "series that begin with a text": column("history", [["x1", *"23456789"], ["x1", *"98765432"]], "name"),
    "series that begin with an empty text": column("history", [["", *"23456789"], ["", *"98765432"]], "name"),
    "series that begin with infinity": column("history", [["-Infinity", *"23456789"], ["-Inf", *"98765432"]], "name"),
    "series that begin with a dash": column("history", [["-x", *"23456789"], ["-", *"98765432"]], "name"),
    "series of one digit": column("history", [list("123456789"), list("987654321")], "name"),
    "series with an odd first point": column("points", [[["t", 1], *([at, at * 2] for at in range(9))]] * 3, "name"),
    "series of pairs with a longer one": column(
        "points", [[[step, at * step % 5] for step in range(9)] + [[1, 2, 3]] * (at == 1) for at in range(4)], "name"
    ),
    "series of pairs with a number": column(
        "points", [[[step, at * step % 5] for step in range(9)] + [7] * (at == 1) for at in range(4)], "name"
    ),
    "lists of three": column("points", [[[step, at, 1] for step in range(9)] for at in range(4)], "name"),
    "series that some rows have": [
        {"name": f"n{at}"} | ({"history": [at * 3 + step % 5 for step in range(9)]} if at % 2 else {})
        for at in range(8)
    ],
    "lists of numbers alone": [[at * step % 11 for step in range(31)] for at in range(4)],
    "mixed in lists": column("v", [[1, "x", Decimal("2.5"), 1]] * 4),
    "words of files in lists": column("files", [[f"fix m{at}.py", "add n.py"] for at in range(9)]),
    "means of many digits": column("size", [1, 1, 2, 10**17]),
    "means that are tiny": column("size", [Decimal("0.0000001"), Decimal("0.0000002"), Decimal("0.0000005")]),
    "sums that cannot be said": column("size", [Decimal("1e999"), Decimal("1e-999"), Decimal(3)]),
    "groups of sums that cannot be said": [
        {"team": "ab"[at % 2], "size": (Decimal("1e999"), Decimal("1e-999"))[at // 2 % 2]} for at in range(8)
    ],
    "groups of means that cannot be said": [
        {"team": "ab"[at % 2], "score": (Decimal("1e999"), Decimal("1e-999"))[at // 2 % 2]} for at in range(8)
    ],
    "texts of 90 characters": column("note", [f"{at}-{'x' * 88}" for at in range(6)]),
    "texts of 91 characters": column("note", [f"{at}-{'x' * 89}" for at in range(6)]),
    "texts of 60 characters, two alike": column(
        "note", [f"{at // 2 * (at < 2) or at:02}-{'x' * 57}" for at in range(14)]
    ),
    "texts of 61 characters, two alike": column(
        "note", [f"{at // 2 * (at < 2) or at:02}-{'x' * 58}" for at in range(14)]
    ),
    "a quarter of the texts have blanks": column("note", [f"{at} x" if at % 4 == 0 else f"{at}x" for at in range(8)]),
    "more of the texts have blanks": column("note", [f"{at} x" if at % 3 == 0 else f"{at}x" for at in range(8)]),
    "categories of 80 characters": column("note", [f"{at % 2}{'x' * 79}" for at in range(8)]),
    "categories of 81 characters": column("note", [f"{at % 2}{'x' * 80}" for at in range(8)]),
    "names beside other names": [
        {"id": f"i{at}", "name": f"thing {at}", "file_name": f"f{at}", "owner": {"name": f"o{at}"}, "place": at}
        for at in range(9)
    ],
    "numbers that count the rows": [
        {"position": at + 1, "code": at * 31 % 17 + 3, "text": f"t {at}"} for at in range(9)
    ],
    "names that begin alike": [{"name": f"main-{at}", "id": f"main-{at}x", "key": f"n-{at}"} for at in range(9)],
    "long names": [{"name": f"{at}" + "name " * 30, "slug": f"s{at}"} for at in range(9)],
    "addresses with the number in them": [
        {
            "number": 100 + at,
            "no": 10 + at,
            "url": f"https://x.example/{100 + at}",
            "link": f"https://y.example/{10 + at}",
        }
        for at in range(9)
    ],
    "numbers of other things": [
        {
            "name": f"n{at}",
            "group": {"id": at * 7919 % 101},
            "url": f"https://x.example/{at * 37 % 11}",
            "sha": hashlib.sha1(b"%d" % at).hexdigest(),
            "size": at * at,
        }
        for at in range(20)
    ],
    "lists with names in the first": [["day", "n"], ["mon", 1], ["tue", 5], ["wed", 2], ["thu", 9]],
    "lists, three of them": [["day", "n"], ["mon", 1], ["tue", 5]],
    "lists with a name twice in the first": [["day", "day"], ["mon", 1], ["tue", 5], ["wed", 2], ["thu", 9]],
    "lists of texts": [["day", "n"], ["mon", "1"], ["tue", "5"], ["wed", "2"], ["thu", "9"]],
}
