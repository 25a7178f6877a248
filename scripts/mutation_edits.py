"""Small changes to a module, each of which some test should notice: what `make mutants` runs the tests against.

A change is an edit of the source text, so that all else stays as it was. What no test should notice is left alone:
names of types, docstrings, words of errors and logs, decorators, `__repr__`, what is marked `no cover`.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.BitAnd: ("&", "|"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_CALLS = {
    "min": "max", "max": "min", "any": "all", "all": "any", "startswith": "endswith", "endswith": "startswith",
    "lstrip": "rstrip", "rstrip": "lstrip", "isdisjoint": "issuperset", "add": "discard", "append": "remove",
    "partition": "rpartition", "rpartition": "partition",
}  # fmt: skip
_LOGGERS = frozenset({"log", "_log", "logger", "warnings"})
_UNSEEN = frozenset({"__repr__", "statistics"})
SMALL = 10
"""An integer up to this becomes the next one; a larger one, which is a bound, is doubled."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one module."""

    module: str
    """Its path below `src/mcpbridge`."""
    line: int
    start: int
    """Bytes of the source from here …"""
    end: int
    """… to here are replaced."""
    replacement: str
    before: str
    """The line as it is."""
    after: str
    """The line as it becomes."""
    last_line: int

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is known by while lines move: module, line and changed line."""
        return self.module, self.before, self.after

    def applied(self, source: bytes) -> bytes:
        """The module with the change."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]


def mutants_of(module: str, source: str) -> list[Mutant]:
    """All changes of a module, in the order of its lines."""
    return sorted(set(_Finder(module, source).found), key=lambda one: (one.start, one.end, one.replacement))


class _Finder:
    """Walks a tree once."""

    def __init__(self, module: str, source: str) -> None:
        self._module, self._text = module, source.encode()
        self._lines = self._text.split(b"\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self.found: list[Mutant] = []
        self._visit(ast.parse(source), in_words=False)

    def _visit(self, node: ast.AST, *, in_words: bool) -> None:
        match node:
            case ast.JoinedStr():  # where its pieces stand is unknown before Python 3.12
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, in_words)
                return
            case ast.ClassDef():
                for statement in node.body:
                    self._visit(statement, in_words=in_words)
                return
            case ast.AnnAssign():
                if node.value is not None:
                    self._visit(node.value, in_words=in_words)
                return
            case ast.Raise():
                self._replace(node, "pass")
                if node.exc is not None:
                    self._visit(node.exc, in_words=True)
                return
            case ast.If() if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                return
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Assert():
                return
            case ast.Expr(value=ast.Call() as call) if _is_log(call):
                return
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                return
            case _:
                pass
        if in_words and isinstance(node, ast.Constant | ast.BinOp):
            return
        for start, end, replacement in self._changes(node):
            self._add(node, start, end, replacement)
        for child in ast.iter_child_nodes(node):
            self._visit(child, in_words=in_words)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, in_words: bool) -> None:
        if node.name in _UNSEEN or any(_is_declared(one) for one in node.decorator_list):
            return
        for default in [*node.args.defaults, *node.args.kw_defaults]:
            if default is not None:
                self._visit(default, in_words=in_words)
        for statement in node.body:
            self._visit(statement, in_words=in_words)

    def _changes(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        match node:
            case ast.Compare():
                yield from self._comparisons(node)
            case ast.BoolOp():
                yield from self._operands(node)
            case ast.BinOp() if type(node.op) in _ARITHMETIC and not _is_text(node):
                sign, other = _ARITHMETIC[type(node.op)]
                yield from self._between(node.left, node.right, re.escape(sign), (other,))
            case ast.UnaryOp(op=ast.Not()):
                yield (*self._span(node), self._source(node.operand))
            case ast.Constant():
                if (other := _other_constant(node.value)) is not None:
                    yield (*self._span(node), other)
            case ast.Call(func=ast.Name(id=name) as called) if name in _CALLS:
                yield (*self._span(called), _CALLS[name])
            case ast.Call(func=ast.Attribute(attr=name) as called) if name in _CALLS:
                end = self._span(called)[1]
                yield end - len(name), end, _CALLS[name]
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield (*self._span(value), "None")
            case (
                ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Delete() | ast.Break() | ast.Continue()
            ):
                yield (*self._span(node), "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield (*self._span(node), "pass")
            case ast.keyword(value=ast.Constant()):
                pass
            case _:
                pass
        yield from self._conditions(node)

    def _conditions(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        match node:
            case ast.If() | ast.IfExp():
                tests = [node.test]
            case ast.comprehension():
                tests = node.ifs
            case ast.match_case():
                tests = [node.guard] if node.guard is not None else []
            case ast.While() if not isinstance(node.test, ast.Constant):
                yield (*self._span(node.test), "False")  # the other would not end
                return
            case _:
                return
        for test in tests:
            for value in ("True", "False"):
                yield (*self._span(test), value)

    def _comparisons(self, node: ast.Compare) -> Iterator[tuple[int, int, str]]:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            sign, others = _COMPARISONS[type(operator)]
            yield from self._between(left, right, rf"\b{sign}\b" if sign[0].isalpha() else sign, others)
            for side in (left, right):
                if isinstance(side, ast.Constant) and isinstance(side.value, str):
                    yield (*self._span(side), repr(side.value + "~"))
            left = right

    def _operands(self, node: ast.BoolOp) -> Iterator[tuple[int, int, str]]:
        sign, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from self._between(left, right, rf"\b{sign}\b", (other,))
        neutral = str(isinstance(node.op, ast.And))
        for value in node.values:
            yield (*self._span(value), neutral)

    def _between(
        self, left: ast.expr, right: ast.expr, sign: str, others: tuple[str, ...]
    ) -> Iterator[tuple[int, int, str]]:
        start, end = self._span(left)[1], self._span(right)[0]
        found = re.search(
            sign.encode(), re.sub(rb"#[^\n]*", lambda comment: b" " * len(comment[0]), self._text[start:end])
        )
        if found is not None:
            for other in others:
                yield start + found.start(), start + found.end(), other

    def _replace(self, node: ast.stmt, replacement: str) -> None:
        self._add(node, *self._span(node), replacement)

    def _add(self, node: ast.AST, start: int, end: int, replacement: str) -> None:
        first, last = self._line_at(start), self._line_at(end)
        if any(b"no cover" in line for line in self._lines[first - 1 : last]):
            return
        was = self._text[start:end].decode()
        if was == replacement:
            return
        whole = self._text[self._starts[first - 1] : self._starts[last] - 1]
        offset = self._starts[first - 1]
        changed = whole[: start - offset] + replacement.encode() + whole[end - offset :]
        before, after = " ".join(whole.decode().split()), " ".join(changed.decode().split())
        self.found.append(Mutant(self._module, first, start, end, replacement, before, after, last))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        place = node if isinstance(node, ast.expr | ast.stmt) else None
        assert place is not None
        assert place.end_lineno is not None
        assert place.end_col_offset is not None
        start = self._starts[place.lineno - 1] + place.col_offset
        return start, self._starts[place.end_lineno - 1] + place.end_col_offset

    def _source(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self._text[start:end].decode()

    def _line_at(self, offset: int) -> int:
        low, high = 0, len(self._lines)
        while low + 1 < high:
            middle = (low + high) // 2
            low, high = (middle, high) if self._starts[middle] <= offset else (low, middle)
        return low + 1


def _other_constant(value: object) -> str | None:
    if isinstance(value, bool):
        return str(not value)
    if isinstance(value, int):
        return str(value + 1 if value <= SMALL else value * 2)
    return str(value + 1) if isinstance(value, float) else None


def _is_text(node: ast.BinOp) -> bool:
    """It joins texts: a minus there is no program."""
    return any(
        isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
        for side in (node.left, node.right)
    )


def _is_log(call: ast.Call) -> bool:
    return (
        isinstance(call.func, ast.Attribute)
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id in _LOGGERS
    )


def _is_declared(decorator: ast.expr) -> bool:
    """It is there for readers and type checkers alone."""
    return isinstance(decorator, ast.Name) and decorator.id in ("overload", "abstractmethod")
