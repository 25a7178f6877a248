"""Parses `where`, as an expression or as an object.

As an expression: `state == "open" and (comments > 3 or len(labels) == 0)`.

    either   = all ("or" all)*
    all      = one ("and" one)*
    one      = "not" one | "(" either ")" | operand [operator operand] | operand ["not"] "exists"
    operand  = "text" | 12.50 | true | null | [value, ...] | field | function(field) | exists(field)

`||`, `&&`, `!`, a single `=`, words in capitals and calls such as `title.includes("x")` are understood as well.

As an object: `{"state": "open", "comments": {"gt": 3}}`; lists mean one of, `$gt` is `gt`.
"""

import re
from decimal import Decimal
from typing import Any, NoReturn, cast

from mcpbridge.results.errors import QueryRefused, clipped, known_names
from mcpbridge.results.json_path import Name, Path, path_from, string_at
from mcpbridge.results.query.limits import CONDITION_DEPTH, CONDITION_LENGTH, CONDITION_PARTS
from mcpbridge.results.query.predicates import Operand, Test, Where, all_of, any_of, comparison, none_of, operator_named
from mcpbridge.results.query.terms import FUNCTIONS, Term, equal, function_named, parse_term, term_of, written

_SPACE = re.compile(r"\s*")
_SIGN = re.compile(r"===|!==|==|!=|<>|<=|>=|=~|<|>|=|~")
_WORD = re.compile(
    r"(not\s+)?(in|contains|includes|has|starts_?with|ends_?with|match(?:es)?)\b|is(\s+not)?\b", re.IGNORECASE
)
_EXISTS = re.compile(r"(not\s+)?exists\b(?!\s*\()", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d{1,400}(?:\.\d{1,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,4})?(?![\w.])", re.ASCII)
_LITERAL = re.compile(r"(true|false|null|none|undefined)\b(?!\s*[.(\[])", re.IGNORECASE)
_CALLED = re.compile(r"([A-Za-z_]+)\s*\(")
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None, "none": None, "undefined": None}
_TESTING = {"contains", "includes", "startswith", "starts_with", "endswith", "ends_with", "matches", "match"}
"""Operators that may be written as calls: `contains(title, "x")` and `title.includes("x")`."""


def parse_where(text: str) -> Where:
    """Read an expression.

    Raises:
        QueryRefused: what is wrong, and at which character.
    """
    if len(text) > CONDITION_LENGTH:
        raise QueryRefused(f"where: longer than {CONDITION_LENGTH} characters")
    return _Parser(text).read()


class _Parser:
    """Reads one expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._depth = text, 0, 0
        self._terms: list[Term] = []

    def read(self) -> Where:
        test = self._either()
        if self._at < len(self._text):
            self._wrong("expected an operator, and, or")
        return Where(self._text, test, tuple(self._terms))

    def _either(self) -> Test:
        self._depth += 1
        if self._depth > CONDITION_DEPTH:
            self._wrong("nested too deep")
        tests = [self._all()]
        while self._takes_word("or") or self._takes("||"):
            tests.append(self._all())
        self._depth -= 1
        return any_of(tests)

    def _all(self) -> Test:
        tests = [self._one()]
        while self._takes_word("and") or self._takes("&&"):
            tests.append(self._one())
        return all_of(tests)

    def _one(self) -> Test:
        if self._takes_word("not") or (not self._ahead("!=") and self._takes("!")):
            self._depth += 1
            if self._depth > CONDITION_DEPTH:
                self._wrong("nested too deep")
            test = none_of(self._one())
            self._depth -= 1
            return test
        if self._takes("("):
            test = self._either()
            self._expect(")")
            return test
        return self._comparison()

    def _comparison(self) -> Test:
        called = self._called_test()
        if called is not None:
            return called
        left, known = self._operand(), len(self._terms)
        if found := self._match(_EXISTS):
            del self._terms[known - 1 :]
            return comparison(left, "exists", (not found.group(1),))
        if isinstance(left, Term) and (tested := self._method(left)) is not None:
            return tested
        operator, is_not = self._operator()
        if not operator:
            return _truthy(left)
        right = self._operand(in_list=operator == "in")
        if isinstance(right, tuple) and right[0] is None:
            self._terms = [term for term in self._terms if term is not left]
        if operator == "in" and isinstance(right, Term) and isinstance(left, tuple):
            left, right, operator = right, left, "contains"
        test = self._compared(left, operator, right)
        return none_of(test) if is_not else test

    def _compared(self, left: Operand, operator: str, right: Operand) -> Test:
        try:
            return comparison(left, operator, right)
        except QueryRefused as error:
            return self._wrong(str(error))

    def _called_test(self) -> Test | None:
        """`exists(field)`, `contains(field, "x")`."""
        start = self._at
        found = self._match(_CALLED)
        if found is None:
            return None
        name = found.group(1).lower()
        if name == "exists":
            field = self._field()
            self._expect(")")
            return comparison(field, "exists", (True,))
        if name not in _TESTING:
            self._at = start
            return None
        left = self._operand()
        self._expect(",")
        right = self._operand()
        self._expect(")")
        return self._compared(left, operator_named(name), right)

    def _method(self, left: Term) -> Test | None:
        """`title.includes("x")`, of which the field is read by now."""
        last = left.path.steps[-1] if left.path.steps else None
        if not isinstance(last, Name) or last.name.lower() not in _TESTING or not self._takes("("):
            return None
        field = term_of(Path(left.path.text.rpartition(".")[0] or "$", left.path.steps[:-1]))
        self._terms[-1] = field
        right = self._operand()
        self._expect(")")
        return self._compared(field, operator_named(last.name), right)

    def _operator(self) -> tuple[str, bool]:
        """The operator, and whether it is turned round; empty if there is none."""
        if found := self._match(_SIGN):
            return operator_named(found.group()), False
        if found := self._match(_WORD):
            if found.group(2):
                return operator_named(found.group(2)), bool(found.group(1))
            return "==", bool(found.group(3))
        return "", False

    def _operand(self, *, in_list: bool = False) -> Operand:
        self._skip()
        if quoted := string_at(self._text, self._at):
            self._at = quoted[1]
            return (quoted[0],)
        if self._ahead('"') or self._ahead("'"):
            self._wrong("a text without end")
        if found := self._match(_NUMBER):
            digits = found.group().removeprefix("+")
            return (int(digits) if digits.removeprefix("-").isdigit() else Decimal(digits),)
        if found := self._match(_LITERAL):
            return (_LITERALS[found.group(1).lower()],)
        if self._takes("["):
            return (self._list("]"),)
        if in_list and self._takes("("):
            return (self._list(")"),)
        return self._term()

    def _list(self, end: str) -> list[Any]:
        values = list[Any]()
        while not self._takes(end):
            if values:
                self._expect(",")
            value = self._operand()
            if isinstance(value, Term) or isinstance(value[0], list):
                self._wrong("lists hold texts, numbers, true, false and null")
            values.append(value[0])
        return values

    def _term(self) -> Term:
        start = self._at
        if found := self._match(_CALLED):
            function = function_named(found.group(1))
            if function is None:
                self._at = start
                self._wrong(f"no function '{found.group(1)}'; there are: {known_names('', [*FUNCTIONS, 'exists'])}")
            field = self._field()
            self._expect(")")
            term = term_of(field.path, function, self._text[start : self._at])
        else:
            term = self._field()
        self._terms.append(term)
        return term

    def _field(self) -> Term:
        self._skip()
        if self._text.startswith("`", self._at) and (end := self._text.find("`", self._at + 1)) > 0:
            name, self._at = self._text[self._at + 1 : end], end + 1
            return term_of(Path(name, (Name(name),)))
        try:
            path, self._at = path_from(self._text, self._at)
        except QueryRefused as error:
            self._wrong(str(error) if "path" in str(error) else "expected a field, a text, a number or (")
        return term_of(path)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._skip()
        found = pattern.match(self._text, self._at)
        if found:
            self._at = found.end()
            self._skip()
        return found

    def _skip(self) -> None:
        self._at = _SPACE.match(self._text, self._at).end()  # pyright: ignore[reportOptionalMemberAccess] - matches ""

    def _ahead(self, sign: str) -> bool:
        self._skip()
        return self._text.startswith(sign, self._at)

    def _takes(self, sign: str) -> bool:
        if self._ahead(sign):
            self._at += len(sign)
            self._skip()
            return True
        return False

    def _takes_word(self, word: str) -> bool:
        self._skip()
        end = self._at + len(word)
        after = self._text[end : end + 1]
        if self._text[self._at : end].lower() != word or after.isalnum() or after in ("_", ".", "[", "-"):
            return False
        self._at = end
        self._skip()
        return True

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            self._wrong(f"expected {sign}")

    def _wrong(self, what: str) -> NoReturn:
        there = clipped(self._text[self._at :], 30)
        raise QueryRefused(
            f"where: character {self._at + 1}, at {there!r}: {what}" if there else f"where: at its end: {what}"
        )


def _truthy(operand: Operand) -> Test:
    """A field alone: it has a value that is neither false, 0 nor empty."""
    if isinstance(operand, tuple):
        return lambda row, meter: bool(operand[0])
    return lambda row, meter: any(bool(value) and not equal(value, other=False) for value in operand.values(row, meter))


def where_of(value: Any) -> Where:
    """Read a condition: an expression, an object, or a list of either, all of which hold.

    Raises:
        QueryRefused: it is none; says what is wrong.
    """
    if isinstance(value, str):
        return parse_where(value)
    if isinstance(value, list):
        parts = [where_of(part) for part in cast("list[Any]", value)[: CONDITION_PARTS + 1]]
        if not 0 < len(parts) <= CONDITION_PARTS:
            raise QueryRefused("where: an empty list, or one without end")
        return Where("", all_of([part.test for part in parts]), tuple(term for part in parts for term in part.terms))
    if not isinstance(value, dict):
        raise QueryRefused('where: expected an expression such as state == "open", or an object {"state": "open"}')
    terms = list[Term]()
    test = _conditions(cast("dict[str, Any]", value), terms, 0)
    return Where("", test, tuple(terms))


def _conditions(members: dict[str, Any], terms: list[Term], depth: int) -> Test:
    if depth > CONDITION_DEPTH or len(terms) > CONDITION_PARTS or not members:
        raise QueryRefused("where: an empty object" if not members else "where: too many conditions")
    return all_of([_condition(name, value, terms, depth) for name, value in members.items()])


def _condition(name: str, value: Any, terms: list[Term], depth: int) -> Test:
    known = name.lower().removeprefix("$")
    if known in ("and", "or", "all", "any") and isinstance(value, list):
        parts = [_nested(part, terms, depth) for part in cast("list[Any]", value)]
        if not parts:
            raise QueryRefused(f"where.{name}: an empty list")
        return all_of(parts) if known in ("and", "all") else any_of(parts)
    if known == "not" and isinstance(value, dict):
        return none_of(_nested(value, terms, depth))
    term = parse_term(name)
    if isinstance(value, list):
        terms.append(term)
        return comparison(term, "in", (cast("list[Any]", value),))
    if not isinstance(value, dict):
        if value is not None:
            terms.append(term)
        return comparison(term, "==", (value,))
    operators = cast("dict[str, Any]", value)
    if not operators:
        raise QueryRefused(f"where.{clipped(name)}: an empty object")
    return all_of([_operator(term, operator, right, terms) for operator, right in operators.items()])


def _nested(value: Any, terms: list[Term], depth: int) -> Test:
    if isinstance(value, str):
        where = parse_where(value)
        terms.extend(where.terms)
        return where.test
    if not isinstance(value, dict):
        raise QueryRefused("where: expected an object or an expression")
    return _conditions(cast("dict[str, Any]", value), terms, depth + 1)


def _operator(term: Term, name: str, right: Any, terms: list[Term]) -> Test:
    if name.lower() in ("not", "$not") and isinstance(right, dict):
        return none_of(
            all_of([_operator(term, key, value, terms) for key, value in cast("dict[str, Any]", right).items()])
        )
    at = f"where.{clipped(term.text)}: "
    operator = operator_named(name, at)
    if operator in ("in", "not in") and not isinstance(right, list):
        raise QueryRefused(f"{at}{name} needs a list, not {clipped(written(right))}")
    if operator != "exists" and right is not None:
        terms.append(term)
    return comparison(term, operator, (cast("Any", right),))
