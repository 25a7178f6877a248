"""The JSON form that protobuf defines for messages (ProtoJSON): its JSON Schema, and messages to JSON and back. Pure.

A 64-bit integer of an argument may be a number or a string; in results it is always a string. No `oneOf` is at the
top of a schema, which some clients refuse: descriptions say that only one of several fields may be given, and it is
checked when the message is made.
"""

import json
from collections import Counter
from typing import Any

from mcpbridge.base.errors import ArgumentsRefused
from mcpbridge.tools.grpc.message_types import Libraries, Types

_Schema = dict[str, Any]

_INTEGERS = {**dict.fromkeys((5, 15, 17), (-(2**31), 2**31 - 1)), **dict.fromkeys((7, 13), (0, 2**32 - 1))}
"""What fits into types of 32 bits."""
_LONG = {3, 4, 6, 16, 18}
"""Types of 64 bits, by their number in `FieldDescriptorProto.Type`."""
_UNSIGNED_LONG = {4, 6}
_FLOATS = {1, 2}
_BOOL, _STRING, _MESSAGES, _BYTES, _ENUM = 8, 9, {10, 11}, 12, 14
_NOT_FINITE: _Schema = {"type": "string", "enum": ["NaN", "Infinity", "-Infinity"]}

_WELL_KNOWN: dict[str, _Schema] = {
    "Timestamp": {"type": "string", "format": "date-time"},
    "Duration": {
        "type": "string",
        "pattern": r"^-?[0-9]+(\.[0-9]{1,9})?s$",
        "description": "Seconds with an `s`: 1.5s",
    },
    "FieldMask": {"type": "string", "description": "Paths of fields, separated by commas: user.displayName,photo"},
    "Struct": {"type": "object"},
    "Value": {},
    "ListValue": {"type": "array"},
    "Empty": {"type": "object", "properties": {}, "additionalProperties": False},
    "Any": {
        "type": "object",
        "properties": {"@type": {"type": "string", "description": "type.googleapis.com/ and the name of its type"}},
        "required": ["@type"],
    },
}
_WRAPPED = {
    f"{name}Value" for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


def schema_of(types: Types, message: Any, *, takes: bool) -> _Schema:
    """The schema of a message type, an object. `takes`: of what is sent to the server; else of what comes from it."""
    maker = _Maker(types, takes)
    maker.count(message)
    schema = maker.whole(message)
    if is_wrapped(message):
        schema = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    if maker.definitions:
        schema["$defs"] = maker.definitions
    return schema


def is_wrapped(message: Any) -> bool:
    """In JSON this type is no object, as arguments and results must be: it is `value` in one."""
    return _well_known(message) not in (None, "Struct", "Empty", "Any")


def to_json(libraries: Libraries, types: Types, message: Any) -> dict[str, Any]:
    """A message as JSON, an object. Includes fields that are not set and equal their defaults."""
    value = libraries.json.MessageToDict(message, descriptor_pool=types.pool, always_print_fields_with_no_presence=True)
    return {"value": value} if is_wrapped(message.DESCRIPTOR) else value


def from_json(libraries: Libraries, types: Types, message_class: Any, arguments: Any) -> Any:
    """The message of this class that the arguments describe.

    Raises:
        ArgumentsRefused: they describe none.
    """
    name = message_class.DESCRIPTOR.full_name
    value = arguments.get("value") if is_wrapped(message_class.DESCRIPTOR) else arguments
    try:
        return libraries.json.ParseDict(value, message_class(), descriptor_pool=types.pool)
    except libraries.json.ParseError as error:
        raise ArgumentsRefused(f"They do not fit {name}: {_one_line(error)}") from error
    except (TypeError, ValueError, AttributeError, KeyError) as error:  # what it did not expect to meet
        raise ArgumentsRefused(f"They do not fit {name}") from error


def _one_line(error: Exception) -> str:
    return " ".join(json.dumps(str(error), ensure_ascii=False)[1:-1].replace("\\n", " ").replace('\\"', '"').split())


class _Maker:
    """Makes one schema: types that are met more than once, or that contain themselves, become definitions."""

    def __init__(self, types: Types, takes: bool) -> None:
        self._types, self._takes = types, takes
        self._met = Counter[str]()
        self.definitions: dict[str, _Schema] = {}

    def count(self, message: Any) -> None:
        """Count how often each type is met: in every cycle there is one that is met twice."""
        waiting = [message]
        while waiting:
            one = waiting.pop()
            self._met[one.full_name] += 1
            if self._met[one.full_name] == 1 and _well_known(one) is None:
                waiting += [field.message_type for field in one.fields if field.type in _MESSAGES]

    def whole(self, message: Any) -> _Schema:
        """The schema of a message type itself."""
        known = _well_known(message)
        if known is not None:
            return self._known(message, known)
        properties = {field.json_name: self._described(field) for field in message.fields}
        schema: _Schema = {"type": "object", "properties": properties}
        if self._takes:
            required = [field.json_name for field in message.fields if self._is_required(field)]
            if required:
                schema["required"] = required
            schema["additionalProperties"] = False
        return schema

    def _is_required(self, field: Any) -> bool:
        return field.is_required or self._types.is_marked_required(field)

    def _described(self, field: Any) -> _Schema:
        schema = self._repeated(field)
        notes = [self._types.comments.get(field.full_name, ""), self._choice(field)]
        said = " ".join(note for note in notes if note)
        if not said:
            return schema
        return {"allOf": [schema], "description": said} if "$ref" in schema else {**schema, "description": said}

    def _choice(self, field: Any) -> str:
        choice = field.containing_oneof
        if not self._takes or choice is None or len(choice.fields) < 2:  # one alone: `optional`
            return ""
        return f"Only one of {', '.join(other.json_name for other in choice.fields)}."

    def _repeated(self, field: Any) -> _Schema:
        if not field.is_repeated:
            return self._single(field)
        if field.type in _MESSAGES and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name
            schema: _Schema = {"type": "object", "additionalProperties": self._single(entry["value"])}
            if entry["key"].type not in (_STRING, _BOOL):
                schema["propertyNames"] = {"pattern": "^-?[0-9]+$"}
            return schema
        return {"type": "array", "items": self._single(field)}

    def _single(self, field: Any) -> _Schema:
        if field.type in _MESSAGES:
            return self._message(field.message_type)
        return self._enum(field.enum_type) if field.type == _ENUM else self._scalar(field.type)

    def _message(self, message: Any) -> _Schema:
        name = message.full_name
        if self._met[name] < 2 or _well_known(message) is not None:
            schema = self.whole(message)
            said = self._types.comments.get(name)
            return {**schema, "description": said} if said and "description" not in schema else schema
        if name not in self.definitions:
            self.definitions[name] = {}  # it may contain itself
            self.definitions[name] = self.whole(message)
        return {"$ref": f"#/$defs/{name}"}

    def _enum(self, enum: Any) -> _Schema:
        if enum.full_name == "google.protobuf.NullValue":
            return {"type": "null"}
        names: _Schema = {"type": "string", "enum": [value.name for value in enum.values]}
        said = self._types.comments.get(enum.full_name)
        if said:
            names["description"] = said
        # What a newer server added to it arrives as a number.
        return names if self._takes or enum.is_closed else {"anyOf": [names, {"type": "integer"}]}

    def _scalar(self, type_: int) -> _Schema:
        if type_ in _INTEGERS:
            low, high = _INTEGERS[type_]
            return {"type": "integer", "minimum": low, "maximum": high}
        if type_ in _LONG:
            return self._long(type_ in _UNSIGNED_LONG)
        if type_ in _FLOATS:
            return {"type": "number"} if self._takes else {"anyOf": [{"type": "number"}, _NOT_FINITE]}
        if type_ == _BOOL:
            return {"type": "boolean"}
        if type_ == _BYTES:  # the library skips what is no base64, so that something else would be sent
            return {"type": "string", "contentEncoding": "base64", "pattern": "^[A-Za-z0-9+/_-]*={0,2}$"}
        return {"type": "string"}

    def _long(self, is_unsigned: bool) -> _Schema:
        pattern = "^[0-9]+$" if is_unsigned else "^-?[0-9]+$"
        if not self._takes:
            return {"type": "string", "pattern": pattern}
        bounds = (0, 2**64 - 1) if is_unsigned else (-(2**63), 2**63 - 1)
        return {"type": ["integer", "string"], "minimum": bounds[0], "maximum": bounds[1], "pattern": pattern}

    def _known(self, message: Any, known: str) -> _Schema:
        if known not in _WRAPPED:
            return dict(_WELL_KNOWN[known])
        value = self._scalar(message.fields_by_name["value"].type)
        return {"anyOf": [value, {"type": "null"}]}


def _well_known(message: Any) -> str | None:
    package, _, name = message.full_name.rpartition(".")
    return name if package == "google.protobuf" and (name in _WELL_KNOWN or name in _WRAPPED) else None
