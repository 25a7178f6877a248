"""Fill the form of a tool's arguments in, and read the arguments back from it. Pure.

A control that is left blank leaves its argument out. Where a form cannot hold what somebody wants to send (an empty
text, null, a member that the schema does not name), the box for JSON can.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mcpbridge.app.console.schema_fields import UNSET, Field, Kind, Unset, as_json
from mcpbridge.app.console.shown_text import inert_text, pretty_json
from mcpbridge.base.json_values import decoded

_ITEMS = 200
"""Items of one list that are looked at."""
_BEGUN = 3
"""Items that a required list begins with, at most."""
_THERE = "on"
"""What the control of an object or a list holds that is to be sent though it has nothing in it."""


class FormProblem(ValueError):
    """What was given is no arguments. `problems`: by the name of a control, what is wrong with it."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {what}" for name, what in problems.items()))
        self.problems = problems


# -- filling in


def with_defaults(form: Field) -> Field:
    """The form as it is shown first: with the defaults of the schema."""
    if not isinstance(form.default, Unset):
        return with_values(form, form.default)
    if form.kind == "object":
        return replace(form, fields=tuple(with_defaults(one) for one in form.fields))
    if form.kind == "list" and form.item is not None and form.is_required:
        count = min(_BEGUN, form.least)
        return replace(form, fields=tuple(with_defaults(_item(form, number)) for number in range(count)))
    return form


def with_values(form: Field, value: object) -> Field:
    """The form with these values in it, as far as its controls can hold them; `UNSET`: none."""
    if form.kind == "object":
        members: Mapping[str | None, object] = {}
        if isinstance(value, Mapping):
            members = cast("Mapping[str | None, object]", value)
        fields = tuple(with_values(one, members.get(one.key, UNSET)) for one in form.fields)
        return replace(form, fields=fields, value=_THERE if isinstance(value, Mapping) else "")
    if form.kind == "list":
        items = cast("Sequence[object]", value) if isinstance(value, list) else ()
        fields = tuple(with_values(_item(form, number), one) for number, one in enumerate(items[:_ITEMS]))
        return replace(form, fields=fields, value=_THERE if isinstance(value, list) else "")
    return replace(form, value="" if isinstance(value, Unset) else _field_text(value, form.kind))


def as_given(form: Field, given: Mapping[str, str], problems: Mapping[str, str]) -> Field:
    """The form as somebody filled it in, with what is wrong."""
    return _marked(_grown(form, given), given, problems)


def controls(form: Field) -> Iterator[tuple[str, str]]:
    """The names of the controls of a form that was filled in, and what they hold, as a browser sends them."""
    if form.kind not in ("object", "list") or form.value:
        yield form.name, form.value
    for field in form.fields:
        yield from controls(field)


def can_hold(form: Field, values: Mapping[str, Any]) -> bool:
    """Whether the form can hold these arguments: they come back as they are."""
    try:
        return arguments_of(form, dict(controls(with_values(form, values)))) == values
    except FormProblem:
        return False


def _item(form: Field, number: int) -> Field:
    """One more item of a list."""
    assert form.item is not None, "a list has one"
    return _renamed(form.item, len(form.item_name), f"{form.name}.{number}")


def _renamed(field: Field, length: int, name: str) -> Field:
    """The field under another name, of which this much is replaced."""
    return replace(
        field,
        name=name + field.name[length:],
        fields=tuple(_renamed(one, length, name) for one in field.fields),
        item=_renamed(field.item, length, name) if field.item is not None else None,
    )


def _grown(form: Field, given: Mapping[str, str]) -> Field:
    """The form with as many items in its lists as were given."""
    if form.kind == "list":
        beginning = f"{form.name}."
        found = {name[len(beginning) :].partition(".")[0] for name in given if name.startswith(beginning)}
        numbers = sorted(int(one) for one in found if one.isascii() and one.isdigit() and len(one) < 6)
        return replace(form, fields=tuple(_grown(_item(form, number), given) for number in numbers[:_ITEMS]))
    return replace(form, fields=tuple(_grown(one, given) for one in form.fields)) if form.fields else form


def _marked(form: Field, given: Mapping[str, str], problems: Mapping[str, str]) -> Field:
    fields = tuple(_marked(one, given, problems) for one in form.fields)
    return replace(form, fields=fields, value=given.get(form.name, ""), problem=problems.get(form.name, ""))


def _field_text(value: object, kind: Kind) -> str:
    """A value as a control holds it; blank where the control cannot hold it as it is."""
    if kind == "json":
        return pretty_json(value)
    if kind in ("text", "line"):
        fits = isinstance(value, str) and inert_text(value) == value and "\r" not in value
        return value if isinstance(value, str) and fits and (kind == "text" or "\n" not in value) else ""
    if kind == "choice":
        return as_json(value)
    return "" if value is None or isinstance(value, str | list | dict | bool) else as_json(value)


# -- reading


def arguments_of(form: Field, given: Mapping[str, str]) -> dict[str, Any]:
    """The arguments that the form was filled in with: what its controls hold, by their names.

    Raises:
        FormProblem: a number is none, JSON is none, or something required is missing.
    """
    reader = _Reader(given)
    found = reader.value(_grown(form, given))
    if reader.problems:
        raise FormProblem(reader.problems)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def read_json(text: str) -> dict[str, Any]:
    """The arguments in the box for JSON.

    Raises:
        FormProblem: that is no JSON object.
    """
    if not text.strip():
        return {}
    try:
        found: object = _parsed(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise FormProblem({"raw": f"is no JSON: {str(error)[:200]}"}) from error
    if not isinstance(found, dict):
        raise FormProblem({"raw": "must be a JSON object, as in {}"})
    return cast("dict[str, Any]", found)


def _parsed(text: str) -> Any:
    """A JSON value. Raises what JSON readers raise; `NaN`, which some read, is no JSON."""
    data = text.strip().encode()
    msgspec.json.decode(data, type=msgspec.Raw)
    return decoded(data)


class _Blank(Struct, frozen=True):
    """What stands for an argument that must be there, and of which nothing was filled in."""

    value: Any


def _is_of(kind: Kind, value: object) -> bool:
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return kind != "number" or not (value is None or isinstance(value, bool | str | list | dict))


def _are_blank(parts: Sequence[tuple[str | None, object]]) -> bool:
    return all(isinstance(value, _Blank) for _, value in parts)


_MISSING = "is required"


class _Reader:
    """Reads what a browser sent."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self.problems: dict[str, str] = {}

    def value(self, field: Field) -> Any:
        """The value of a field. `UNSET`: it is left out. `_Blank`: it must be there, and nothing was filled in."""
        if field.kind not in ("object", "list"):
            return self._single(field, self._given.get(field.name, "").replace("\r\n", "\n"))
        before = dict(self.problems)
        parts = [(one.key, value) for one in field.fields if not isinstance(value := self.value(one), Unset)]
        is_asked = bool(self._given.get(field.name)) or field.key is None
        is_blank = not is_asked and (not parts if field.kind == "list" else _are_blank(parts))
        if is_blank and not field.is_required:
            new = {what for name, what in self.problems.items() if name not in before}
            if new <= {_MISSING}:  # nothing is missing in what is left out
                self.problems = before
                return UNSET
        plain = [(key, value.value if isinstance(value, _Blank) else value) for key, value in parts]
        made = dict(plain) if field.kind == "object" else [value for _, value in plain]
        return _Blank(made) if is_blank else made

    def _single(self, field: Field, text: str) -> Any:
        if not text or (field.kind != "text" and not text.strip()):
            return self._blank(field)
        if field.kind in ("text", "line"):
            return text
        if field.kind == "choice" and all(text != one.value for one in field.choices):
            return self._refused(field)
        try:
            value: Any = _parsed(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._refused(field)
        return value if _is_of(field.kind, value) else self._refused(field)

    def _blank(self, field: Field) -> object:
        if not field.is_required or field.key is None:
            return UNSET
        if field.is_nullable:
            return _Blank(None)
        self.problems[field.name] = _MISSING
        return UNSET

    def _refused(self, field: Field) -> object:
        self.problems[field.name] = _WANTED[field.kind]
        return UNSET


_WANTED = {
    "integer": "must be a whole number",
    "number": "must be a number",
    "choice": "is none of the choices",
    "json": "must be JSON: put a text in quotation marks",
}
