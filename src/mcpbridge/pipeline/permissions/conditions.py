"""Conditions on calls, in the Common Expression Language: what is wrong with one, and whether it holds.

The language has no side effects and no unbounded loops, so a condition ends. How soon depends on what it loops over,
which clients choose, and the library stops nothing that runs. So a condition may nest two loops at most (three over 500
numbers took 36 s, two took 60 ms), and one that loops is not evaluated over more than `MOST_VALUES` values, nor over
lists and texts so long that looking at them again and again would take more than a moment (`MOST_WORK`). It runs on
the event loop: 3 to 10 µs for what people write.
"""

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from mcpbridge.base.late_pattern import late
from mcpbridge.base.suggestions import nearest

LONGEST = 1000
"""Characters of a condition."""

MOST_VALUES = 500
"""Members and items, at any depth, of the arguments and context that a condition with loops reads."""

MOST_VALUES_AT_ALL = 100_000
"""The same, of one without loops: the library takes 4 µs to take over a member."""

MOST_WORK = 10_000_000
"""Rounds of nested loops, if each were over the longest list, times values and characters of what is read: 0.5 s if
each round looks at all of it."""

_PATTERN = 1000
"""What `matches` counts for in each round: it reads its pattern anew, which takes 50 µs."""

DEEPEST_LOOPS = 2

_MEMBERS: Mapping[str, frozenset[str] | None] = {
    "args": None,
    "tool": frozenset({"id", "name", "server", "risk", "read_only", "side_effects", "destructive", "idempotent"}),
    "client": frozenset({"name", "principal"}),
    "context": frozenset({"run", "session", "user", "tenant", "metadata"}),
    "claims": None,
}
"""The variables, and what they have; None where that depends on the call."""
_TYPES = frozenset(
    ("int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "timestamp", "duration", "type")
)
_DATES = ("FullYear", "Month", "Date", "DayOfMonth", "DayOfWeek", "DayOfYear", "Hours", "Minutes", "Seconds")
_FUNCTIONS = frozenset(
    (
        *("size", "contains", "startsWith", "endsWith", "matches", "type", "dyn"),
        *("int", "uint", "double", "string", "bytes", "timestamp", "duration"),
        *(f"get{part}" for part in (*_DATES, "Milliseconds")),
    )
)
_TEXTS = late(
    r"""[bB]?[rR][bB]?(?:'''.*?'''|\"{3}.*?\"{3}|'[^'\n]*'|"[^"\n]*")"""
    r"""|[bB]?(?:'''(?:\\.|.)*?'''|\"{3}(?:\\.|.)*?\"{3}|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")|//[^\n]*""",
    re.DOTALL,
)
_LOOP = late(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(\s*(\w+)\s*,|[()]")
_ARGUMENTS = late(r"(?<![.\w])args\b(?:\s*\.\s*(\w+)\b(?!\s*\())?")
_MEMBER = late(r"(?<![.\w])(tool|client|context)\s*\.\s*(\w+)")


class Faulty(Exception):
    """Text that is no condition; says what is wrong with it."""


class Undecidable(Exception):
    """A condition that cannot be evaluated for this call; says why, without a value of the call."""


class Condition:
    """One condition, compiled."""

    def __init__(self, source: str) -> None:
        """Raises Faulty: it cannot be compiled, or it could never be evaluated."""
        self.source = source
        self._program = _compiled(source)
        bare = _TEXTS.sub(lambda found: " " if found[0].startswith("//") else '""', source)
        bound, depth = _loops(bare)
        if depth > DEEPEST_LOOPS:
            raise Faulty(f"more than {DEEPEST_LOOPS} loops (`all`, `exists`, `map`, `filter`) are nested")
        references: dict[str, list[str]] = self._program.references()
        self.reads = frozenset(references["variables"]) - bound - _TYPES
        """The variables that it needs."""
        self._depth, self._per_round = depth, _PATTERN if "matches" in references["functions"] else 0
        _check_names(self.reads, bound, references["functions"], bare)
        named = [found[1] for found in _ARGUMENTS.finditer(bare)]
        self._text_test = _TextTest.of(source)
        self.arguments: frozenset[str] | None = None if None in named else frozenset(named)
        """The arguments that it reads; None where it may read any."""

    def holds(self, values: Mapping[str, object]) -> bool:
        """Whether it is true for these variables (those that it `reads`).

        Raises:
            Undecidable: something that it names is missing or of another type, or there is too much to look at.
        """
        if (test := self._text_test) is not None:
            value = cast("dict[str, object]", values["args"]).get(test.name)
            if isinstance(value, str) and value.isascii():  # else what that means is the library's to say
                return test.test(value, test.text)
        if self._depth or not _is_flat(values):
            self._check_size([values.get("args"), values.get("context"), values.get("claims")])
        try:
            result: object = self._program.execute(values)
        except KeyError as error:
            key = error.args[0] if error.args else None
            name = f"'{key}'" if isinstance(key, str) and key in self.source else "something that it names"
            raise Undecidable(f"{name} is missing") from error
        except IndexError as error:
            raise Undecidable("a list is shorter than it expects") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise Undecidable("a value is of another type than it expects") from error
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic of the library is a BaseException, and must not pass for a no
            raise Undecidable("it cannot be computed") from error
        if result is True or result is False:
            return result
        raise Undecidable("it is neither true nor false")

    def _check_size(self, read: list[object]) -> None:
        """Raise Undecidable if it could take long over this."""
        most = MOST_VALUES if self._depth else MOST_VALUES_AT_ALL
        values, longest, characters = _measured(read, most)
        if values > most:
            raise Undecidable(f"{'it loops, and ' if self._depth else ''}the call has more than {most} values")
        if self._depth and longest**self._depth * (values + characters + self._per_round) > MOST_WORK:
            raise Undecidable("it loops, and the lists or texts of the call are too long for that")


class _TextTest:
    """A condition that compares one argument with one text, as most do: the library takes ten times as long for it."""

    _FORM = re.compile(
        r"""\s*args\.(\w+)\s*(?:(==|!=)\s*|\.(startsWith|endsWith|contains)\s*\(\s*)"""
        r"""(?:'([^'"\\\n]*)'|"([^'"\\\n]*)")\s*(\))?\s*"""
    )

    def __init__(self, name: str, method: str, text: str) -> None:
        self.name, self.text = name, text
        self.test: Callable[[str, str], bool] = _TESTS[method]

    @classmethod
    def of(cls, source: str) -> "_TextTest | None":
        """None: the condition is not one of these."""
        found = cls._FORM.fullmatch(source)
        if found is None or bool(found[3]) is not bool(found[6]):
            return None
        return cls(found[1], found[2] or found[3], found[4] or found[5] or "")


_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "==": str.__eq__,
    "!=": str.__ne__,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
}


@lru_cache(maxsize=1024)
def condition_of(source: str) -> Condition:
    """The condition that this text is, compiled once. Raises Faulty."""
    return Condition(source)


def _compiled(source: str) -> Any:
    if len(source) > LONGEST:
        raise Faulty(f"longer than {LONGEST} characters")
    try:
        return _library().compile(source)
    except ValueError as error:
        raise Faulty(_syntax_error(str(error))) from error


def _syntax_error(message: str) -> str:
    """The mistake, of all that the parser tells."""
    if "Recursion limit" in message:
        return "nested too deeply"
    found = re.search(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?(.*)", message)
    if found is None:
        return "it cannot be read"
    line, column, what = found.groups()
    where = f"at character {column}" if line == "1" else f"in line {line}, at character {column}"
    return f"{what.partition(' expecting')[0][:120]}, {where}"


def _library() -> Any:
    """The compiled part of `cel` alone: its package also imports a command line, which takes 120 ms instead of 9."""
    if "cel" in sys.modules or "cel.cel" in sys.modules:
        return importlib.import_module("cel.cel") if "cel.cel" not in sys.modules else sys.modules["cel.cel"]
    found = importlib.util.find_spec("cel")
    if found is None:
        raise Faulty("the package common-expression-language, which evaluates conditions, is not installed")
    sys.modules["cel"] = importlib.util.module_from_spec(found)  # never executed
    try:
        return importlib.import_module("cel.cel")
    finally:
        del sys.modules["cel"]  # so that whoever imports it gets all of it


def _loops(bare: str) -> tuple[frozenset[str], int]:
    """The variables that loops bind, and how deeply loops are nested."""
    bound: set[str] = set()
    open_: list[bool] = []
    deepest = 0
    for found in _LOOP.finditer(bare):
        if found[0] == ")":
            if open_:
                open_.pop()
            continue
        open_.append(found[1] is not None)
        if found[1] is not None:
            bound.add(found[1])
            deepest = max(deepest, sum(open_))
    return frozenset(bound), deepest


def _check_names(reads: frozenset[str], bound: frozenset[str], functions: list[str], bare: str) -> None:
    """Raise Faulty for a name that means nothing, or two things."""
    for name in sorted(bound & _MEMBERS.keys()):
        raise Faulty(f"a loop cannot call its variable `{name}`: that is what the call has")
    for name in sorted(reads - _MEMBERS.keys()):
        raise Faulty(f"unknown variable `{name}`{_meant(name, _MEMBERS)}")
    for name in functions:
        if name[:1].isalpha() and name not in _FUNCTIONS:
            raise Faulty(f"unknown function `{name}`{_meant(name, _FUNCTIONS)}")
    for found in _MEMBER.finditer(bare):
        known = _MEMBERS[found[1]]
        if known is not None and found[2] not in known:
            raise Faulty(f"`{found[1]}` has no `{found[2]}`{_meant(found[2], known)}")


def _meant(name: str, known: Mapping[str, object] | frozenset[str]) -> str:
    close = nearest(name, sorted(known), limit=1)
    return f" (did you mean `{close[0]}`?)" if close else f"; known: {', '.join(sorted(known))}"


def _is_flat(values: Mapping[str, object]) -> bool:
    """Nothing of what a condition reads has members or items of its own, but for its few arguments."""
    if "context" in values or "claims" in values:
        return False
    arguments = cast("dict[str, object]", values.get("args", {}))
    return len(arguments) <= _FEW and not any(isinstance(one, dict | list) for one in arguments.values())


_FEW = 100


def _measured(read: list[object], most: int) -> tuple[int, int, int]:
    """Members and items at any depth (beyond `most` they are not all counted), the longest list, and all characters."""
    values, longest, characters, rest = 0, 0, 0, read
    while rest and values <= most:
        one = rest.pop()
        if isinstance(one, str):
            characters += len(one)
            continue
        if isinstance(one, dict):
            members = cast("dict[str, object]", one)
            characters += sum(map(len, members))
            inner = list(members.values())
        elif isinstance(one, list):
            inner = cast("list[object]", one)
        else:
            continue
        values += len(inner)
        longest = max(longest, len(inner))
        rest += inner if values <= most else ()
    return values, longest, characters
