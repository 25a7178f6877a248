"""The stage that checks arguments: what passes unchanged, what gets defaults, what is refused and in which words."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from mcpbridge.base.errors import ArgumentsRefused, UpstreamAnswered
from mcpbridge.core.call_options import NO_HINTS, CallOptions
from mcpbridge.core.model import Call
from mcpbridge.pipeline.stages.validate_arguments import ValidateArguments, mark_coerced
from mcpbridge.pipeline.validation.coercion import UNWRAPPED
from mcpbridge.pipeline.validation.schema_check import Check, Fault, compiled
from mcpbridge.protocol.body import Body

Schema = dict[str, Any]


class _Tool:
    """A tool of which only the schema matters."""

    server, name, wire, id = "s", "t", "s__t", "s/t"
    hints, headers = NO_HINTS, {}

    def __init__(self, schema: object) -> None:
        self.definition = json.dumps({"name": "t", "inputSchema": schema}).encode()


RESULT = b'{"content":[],"big":123456789012345678901234567890}'


class Passage:
    """What became of one call: the arguments that the server got, the result, or the refusal."""

    def __init__(self, call: Call, result: Body | None, refused: ArgumentsRefused | None) -> None:
        self.call, self.result, self.refused = call, result, refused
        raw = call.params.get("arguments")
        self.arguments = bytes(raw).decode() if raw is not None else None

    @property
    def refusal(self) -> str:
        """The text of the refusal."""
        assert self.refused is not None, f"it passed as {self.arguments}"
        return self.refused.full_message()


async def passing(schema: object, arguments: str | None, /, **options: Any) -> Passage:
    """Let a call with these arguments, as JSON, through the stage of a tool with this schema."""
    stage = ValidateArguments().stage(_Tool(schema), CallOptions(**options))
    call = Call("tools/call", "s", "t", Body(b'{"name":"t"}'))
    if arguments is not None:
        call.params.put("arguments", Raw(arguments.encode()))
    refused = result = None

    async def deliver(_: Call) -> Body:
        return Body(RESULT)

    try:
        result = await (deliver(call) if stage is None else stage(call, deliver))
    except ArgumentsRefused as error:
        refused = error
    return Passage(call, result, refused)


def an_object(**properties: Schema) -> Schema:
    """A schema of an object with these properties."""
    return {"type": "object", "properties": properties}


NUMBER = an_object(n={"type": "integer"})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}, "required": []},
        an_object(anything={}, described={"description": "Whatever you like", "title": "Any"}),
        {},
        None,
        True,
    ],
)
def test_a_schema_that_says_nothing_costs_nothing(schema: object) -> None:
    assert ValidateArguments().stage(_Tool(schema), CallOptions()) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": False},
        {"type": "object", "required": ["n"]},
        {"type": "object", "minProperties": 1},
        {"type": "object", "properties": {"n": False}},
        an_object(n={"type": "integer"}),
        an_object(n={"default": 1}),
    ],
)
def test_a_schema_that_says_anything_is_checked(schema: object) -> None:
    assert ValidateArguments().stage(_Tool(schema), CallOptions()) is not None


def test_what_is_to_be_passed_costs_nothing() -> None:
    options = CallOptions(arguments="pass", inject_defaults=False)
    assert ValidateArguments().stage(_Tool(NUMBER), options) is None
    assert ValidateArguments().stage(_Tool(NUMBER), CallOptions(arguments="pass")) is None, "no default to put in"
    assert ValidateArguments().stage(None, CallOptions()) is None


@pytest.mark.parametrize(
    "schema",
    [
        an_object(n={"$ref": "#/$defs/missing"}),
        an_object(n={"type": "float"}),
        an_object(n={"pattern": "(["}),
        {"$schema": "http://example.org/drafts/99", **NUMBER},
        {"type": "object", "properties": ["n"]},
    ],
)
async def test_what_cannot_be_compiled_is_not_checked(schema: Schema) -> None:
    """Promise of the bridge: a broken schema is never an error of the call."""
    assert ValidateArguments().stage(_Tool(schema), CallOptions()) is None
    assert (await passing(schema, '{"n":"x"}')).arguments == '{"n":"x"}'


def test_no_schema_is_fetched_from_anywhere(tmp_path: Path) -> None:
    """A server could have the bridge read files, or knock at doors, that it must not."""
    (tmp_path / "n.json").write_text('{"type":"integer"}')
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.setblocking(False)
        port: int = door.getsockname()[1]
        for place in (f"http://127.0.0.1:{port}/n.json", (tmp_path / "n.json").as_uri()):
            for schema in (an_object(n={"$ref": place}), {"$schema": place, **NUMBER}, {"$id": place, "$ref": "other"}):
                assert ValidateArguments().stage(_Tool(schema), CallOptions()) is None
        with pytest.raises(BlockingIOError):
            door.accept()


async def test_the_draft_that_the_schema_names_counts() -> None:
    exclusive = an_object(n={"type": "integer", "minimum": 1, "exclusiveMinimum": True})
    older = {"$schema": "http://json-schema.org/draft-04/schema#", **exclusive}
    assert "more than 1" in (await passing(older, '{"n":1}')).refusal
    assert ValidateArguments().stage(_Tool(exclusive), CallOptions()) is None, "not valid in 2020-12"
    pair = an_object(n={"type": "array", "prefixItems": [{"type": "integer"}], "items": False})
    assert (await passing(pair, '{"n":[1,2]}')).refused


async def test_formats_are_not_asserted() -> None:
    dated = an_object(day={"type": "string", "format": "date"}, data={"type": "string", "contentEncoding": "base64"})
    for draft in ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"):
        assert (await passing({"$schema": draft, **dated}, '{"day":"soon","data":"%"}')).refused is None


@pytest.mark.parametrize(
    "arguments",
    [
        '{ "n" : 5 , "m":1.10, "é":"\\u00e9" }',
        '{"n":5.0}',
        '{"n":1, "n":2}',
        '{"n":123456789012345678901234567890}',
        '{"n":' + "7" * 20_000 + "}",
        '{"n":1,"m":1e999}',
        '{"n":1,"deep":' + "[" * 800 + "]" * 800 + "}",
        "{}",
        "null",
        None,
    ],
)
async def test_right_arguments_keep_their_bytes(arguments: str | None) -> None:
    passage = await passing(NUMBER, arguments)
    assert passage.arguments == arguments
    assert passage.result is not None
    assert passage.result.data == RESULT
    assert passage.call.facts is None


@pytest.mark.parametrize("mode", ["coerce", "check"])
async def test_numbers_beyond_64_bits_are_compared_exactly(mode: str) -> None:
    schema = an_object(n={"type": "integer", "maximum": 10**30})
    assert (await passing(schema, '{"n":' + str(10**30) + "}", arguments=mode)).refused is None
    assert (await passing(schema, '{"n":' + str(10**30 + 1) + "}", arguments=mode)).refused


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(?=a)(a|aa)+(?!b)$"])
async def test_no_pattern_takes_long(pattern: str) -> None:
    """Time is bounded by steps: what needs more than that is not checked, what needs less is."""
    schema = an_object(n={"type": "string", "pattern": pattern})
    await passing(schema, json.dumps({"n": "a" * 5000 + "b"}))
    assert (await passing(schema, '{"n":"b"}')).refused


@pytest.mark.parametrize("union", ["anyOf", "oneOf"])
async def test_what_is_not_asserted_rules_out_no_alternative(union: str) -> None:
    """Older drafts have the validator check encodings; formats and encodings are hints here, alone and in a union."""
    encoded = {"type": "string", "contentEncoding": "base64"}
    schema = an_object(a={union: [encoded, {"type": "integer"}]}, n={"type": "integer"})
    schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    assert (await passing(an_object(a=encoded) | {"$schema": schema["$schema"]}, '{"a":"%%"}')).refused is None
    assert (await passing(schema, '{"a":"%%"}')).refused is None
    refusal = (await passing(schema, '{"a":"%%","n":"x"}')).refusal
    assert "`n` must be an integer" in refusal
    assert "`a`" not in refusal
    assert "`a` must be an integer or a string" in (await passing(schema, '{"a":true}')).refusal


# -- defaults

DEFAULTS = an_object(
    n={"type": "integer", "default": 3},
    name={"type": "string"},
    where={
        "type": "object",
        "properties": {"x": {"default": 1.10}, "y": {"default": 2}, "z": {"type": "object", "default": {}}},
    },
)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (None, '{"n":3}'),
        ("null", '{"n":3}'),
        ("{ }", '{"n":3}'),
        ('{ "name" : "é\\u00e9" , "big":1e999 }', '{ "name" : "é\\u00e9" , "big":1e999,"n":3}'),
        ('{"n":null}', None),
        ('{"n":4}', '{"n":4}'),
        ('{"n":4,"where":{"y":5}}', '{"n":4,"where":{"y":5,"x":1.1,"z":{}}}'),
    ],
)
async def test_what_is_absent_gets_its_default(arguments: str | None, expected: str | None) -> None:
    """Objects that are absent themselves stay so, unless they have a default; nothing else changes."""
    passage = await passing(DEFAULTS, arguments, arguments="check")
    assert (passage.arguments if passage.refused is None else None) == expected


async def test_defaults_are_noted_but_are_no_coercion() -> None:
    passage = await passing(DEFAULTS, '{"where":{}}')
    assert passage.call.facts == {"defaults": ["n", "where.x", "where.y", "where.z"]}
    assert passage.result is not None
    assert passage.result.data == RESULT


async def test_a_default_fills_in_what_is_required() -> None:
    schema = {**an_object(n={"type": "integer", "default": 3}, m={"type": "integer"}), "required": ["n", "m"]}
    assert (await passing(schema, '{"m":1}')).arguments == '{"m":1,"n":3}'
    assert (await passing(schema, '{"m":"1"}')).arguments == '{"m":1,"n":3}'
    refusal = (await passing(schema, "{}")).refusal
    assert "`m` is missing" in refusal
    assert "`n` is missing" not in refusal


@pytest.mark.parametrize(
    "properties",
    [
        {"n": {"type": "integer", "default": "many"}},
        {"n": {"type": ["integer", "null"], "default": None}},
        {"n": {"anyOf": [{"type": "object", "properties": {"x": {"default": 1}}}, {"type": "null"}]}},
        {"n": {"$ref": "#/$defs/N"}},
    ],
)
async def test_some_defaults_are_none(properties: Schema) -> None:
    """One that is not right itself, `null`, one in a branch that may not be meant, one behind a reference."""
    schema = {**an_object(**properties), "$defs": {"N": {"type": "integer", "default": 1}}}
    for arguments in ("{}", '{"n":{}}'):
        passage = await passing(schema, arguments, arguments="pass")
        assert passage.arguments == arguments


async def test_a_default_beside_a_reference_must_fit_what_it_refers_to() -> None:
    schema = an_object(a={"$ref": "#/$defs/A", "default": "x"}, b={"$ref": "#/$defs/A", "default": "z"})
    assert (await passing({**schema, "$defs": {"A": {"enum": ["x", "y"]}}}, "{}")).arguments == '{"a":"x"}'


async def test_a_default_that_makes_the_whole_wrong_is_left_out() -> None:
    schema = {**an_object(a={"default": 1}, b={"default": 2}, c={}), "not": {"required": ["b", "c"]}}
    assert (await passing(schema, '{"c":0}')).arguments == '{"c":0,"a":1}'


async def test_defaults_do_not_mend_what_is_passed_as_it_is() -> None:
    passage = await passing(DEFAULTS, '{"name":5}', arguments="pass")
    assert passage.arguments == '{"name":5}'
    assert (await passing(DEFAULTS, "{}", arguments="pass")).arguments == '{"n":3}'
    assert (await passing(DEFAULTS, "{}", inject_defaults=False)).arguments == "{}"


PLAIN = st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["a", "5", "true", [], {}, {"a": 1}])
MEMBERS = st.dictionaries(
    st.sampled_from(["a", "b", "aB", "a_b"]),
    st.builds(
        lambda kind, default, has_default: {"type": kind, **({"default": default} if has_default else {})},
        st.sampled_from(["integer", "string", "boolean", "object", "array"]),
        PLAIN,
        st.booleans(),
    ),
)


@settings(deadline=None, max_examples=300)
@given(
    properties=MEMBERS,
    inner=MEMBERS,
    required=st.sets(st.sampled_from(["a", "b", "aB"]), max_size=2),
    closed=st.booleans(),
    most=st.integers(1, 5),
    arguments=st.dictionaries(st.sampled_from(["a", "b", "aB", "A_B", "inner"]), PLAIN, max_size=4),
)
async def test_with_defaults_too_what_comes_out_is_right_and_what_is_right_only_grows(
    properties: Schema, inner: Schema, required: set[str], closed: bool, most: int, arguments: Schema
) -> None:
    schema = {
        **an_object(**properties, inner=an_object(**inner)),
        "required": sorted(required),
        "maxProperties": most,
        "additionalProperties": not closed,
    }
    is_valid = compiled(schema).is_valid
    passage = await passing(schema, json.dumps(arguments))
    if passage.refused is not None:
        assert not is_valid(arguments)
        return
    assert passage.arguments is not None
    after = json.loads(passage.arguments)
    assert is_valid(after)
    if is_valid(arguments):
        assert "coerced" not in (passage.call.facts or {})
        for name, value in arguments.items():
            assert after[name] == value or (name == "inner" and value.items() <= after[name].items())


# -- refusals


def faults_of(passage: Passage) -> list[tuple[str, str]]:
    """Place and keyword of each fault."""
    assert passage.refused is not None
    faults: Any = passage.refused.facts["mcpbridge/faults"]
    return [(fault["path"], fault["keyword"]) for fault in faults]


@pytest.mark.parametrize(
    ("schema", "arguments", "words"),
    [
        ({"type": "integer"}, '"x"', '`n` must be an integer, not "x"'),
        ({"type": ["null", "integer"]}, "[1]", "`n` must be an integer or null, not [1]"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "{}", "`n` must be an integer or null, not {}"),
        ({"minimum": 2}, "1", "`n` must be at least 2, not 1"),
        ({"exclusiveMaximum": 2}, "2", "`n` must be less than 2, not 2"),
        ({"multipleOf": 5}, "7", "`n` must be a multiple of 5, not 7"),
        ({"enum": ["on", "off"]}, '"offf"', '`n` must be one of "on", "off", not "offf"; did you mean "off"?'),
        ({"const": "v2"}, '"v3"', '`n` must be "v2", not "v3"'),
        ({"pattern": "^a"}, '"b"', '`n` must match the pattern ^a, not "b"'),
        ({"minLength": 3}, '"ab"', "`n` must have at least 3 characters, not 2"),
        ({"maxItems": 1}, "[1,2]", "`n` must have at most 1 items, not 2"),
        ({"uniqueItems": True}, "[1,1]", "`n` must not hold the same item twice"),
        ({"items": {"type": "object", "required": ["id"]}}, "[{}]", "`n[0].id` is missing"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, "4", "`n` fits more than one of its alternatives"),
        ({"propertyNames": {"pattern": "^a"}}, '{"b":1}', "`n` has a name in it that is not allowed"),
        ({"not": {}}, "1", "`n` does not fit: `not`"),
    ],
)  # fmt: skip
async def test_a_fault_is_told_in_words(schema: Schema, arguments: str, words: str) -> None:
    passage = await passing(an_object(n=schema), f'{{"n":{arguments}}}')
    assert f"- {words}\n" in passage.refusal
    assert passage.refusal.startswith("s__t was not called")


async def test_a_forbidden_parameter_must_be_left_out() -> None:
    assert "`n` must be left out" in (await passing({"type": "object", "properties": {"n": False}}, '{"n":1}')).refusal


async def test_unknown_and_missing_parameters_are_told_with_the_nearest_name() -> None:
    schema = {**an_object(query={"type": "string"}, limit={"type": "integer"}), "additionalProperties": False}
    assert "`qurey` is unknown; did you mean `query`?" in (await passing(schema, '{"qurey":"x"}')).refusal
    assert "`zzz` is unknown; known, and not given: `query`, `limit`" in (await passing(schema, '{"zzz":1}')).refusal
    strict = await passing(schema, '{"QUERY":"x"}', arguments="check")
    assert "`QUERY` is unknown; did you mean `query`?" in strict.refusal
    lenient = {**an_object(query={"type": "string"}), "required": ["query"]}
    assert "`query` is missing; is it meant by `qurey`?" in (await passing(lenient, '{"qurey":"x"}')).refusal


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        ('{"QUERY":"x","zzz":1}', [("zzz", "additionalProperties")]),
        ('{"query":"x","limit":"5","mode":"loud"}', [("mode", "enum")]),
        ('{"query":"x","limit":"50","mode":"ON"}', [("limit", "maximum")]),
        ('{"query":"x","limit":"many"}', [("limit", "type")]),
        ('{"query":"x","near":"{\\"lat\\":\\"5\\",\\"lon\\":true}"}', [("near.lon", "type")]),
        ('{"limit":"5"}', [("query", "required")]),
    ],
)
async def test_what_would_be_mended_is_no_fault_beside_one_that_cannot_be(
    arguments: str, faults: list[tuple[str, str]]
) -> None:
    """A model is to correct what only it can correct."""
    number = {"type": "number"}
    schema = {
        **an_object(
            query={"type": "string"},
            limit={"type": "integer", "maximum": 9},
            mode={"enum": ["on", "off"]},
            near={"type": "object", "properties": {"lat": number, "lon": number}},
        ),
        "required": ["query"],
        "additionalProperties": False,
    }
    assert faults_of(await passing(schema, arguments)) == faults
    assert len(faults_of(await passing(schema, arguments, arguments="check"))) >= len(faults)


async def test_of_alternatives_the_one_that_was_chosen_is_told_of() -> None:
    """A constant tells which one is meant."""
    kinds = [
        {"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"]},
        {"type": "object", "properties": {"kind": {"const": "b"}, "s": {"type": "string"}}, "required": ["kind", "s"]},
    ]
    schema = an_object(op={"oneOf": kinds})
    assert '- `op.n` must be an integer, not "x"\n' in (await passing(schema, '{"op":{"kind":"a","n":"x"}}')).refusal
    assert "`op` fits none of its 2 alternatives" in (await passing(schema, '{"op":{"kind":"c"}}')).refusal


async def test_five_faults_are_told_and_the_others_counted() -> None:
    schema = an_object(n={"type": "array", "items": {"type": "integer"}})
    passage = await passing(schema, json.dumps({"n": ["x"] * 30}))
    assert passage.refusal.count("must be an integer") == 5
    assert "- and 25 more\n" in passage.refusal
    assert len(faults_of(passage)) == 20


async def test_a_long_list_of_faults_does_not_hold_up_the_bridge() -> None:
    """The first is told of; all of them would take seconds."""
    schema = an_object(n={"type": "array", "items": {"type": "integer"}})
    assert faults_of(await passing(schema, json.dumps({"n": ["x"] * 100_000}))) == [("n[0]", "type")]


LITERALS = {"oneOf": [{"const": f"c{number}", "title": str(number)} for number in range(100)]}
EITHER = {"anyOf": [an_object(n={"items": {"type": kind}}) for kind in ("string", "null")]}


@pytest.mark.parametrize(
    ("schema", "count", "told"),
    [
        (an_object(n={"items": LITERALS}), 900, [("n[0]", "oneOf")]),
        (an_object(n={"items": {"$ref": "#/$defs/l"}}) | {"$defs": {"l": LITERALS}}, 900, [("n[0]", "oneOf")]),
        (an_object(n={"items": LITERALS}), 2, [("n[0]", "oneOf"), ("n[1]", "oneOf")]),
        (EITHER, 100_000, [("", "schema")]),
        (EITHER, 2, [("", "anyOf")]),
    ],
)
async def test_errors_of_alternatives_do_not_hold_up_the_bridge(
    schema: Schema, count: int, told: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wrong value is an error of each alternative, and all of them are made before the first is told of."""
    levels: list[int] = []
    faults = Check.faults

    def look(check: Check, value: object, size: int) -> list[Fault]:
        found = faults(check, value, size)
        levels.append(sum(1 + sum(map(len, fault.branches)) for fault in found))
        return found

    monkeypatch.setattr(Check, "faults", look)
    assert faults_of(await passing(schema, json.dumps({"n": [{}] * count}))) == told
    assert sum(levels) < 200


async def test_many_strange_names_do_not_hold_up_the_bridge() -> None:
    """Names are compared with a limited number of others, and long ones with none."""
    wanted = {f"wanted_{number}": {"type": "null"} for number in range(50)}
    schema = {**an_object(**wanted), "additionalProperties": False}
    strangers = {f"strange_{number}" * (1 + number % 2 * 9): None for number in range(200)}
    passage = await passing(schema, json.dumps(strangers))
    assert "`strange_0` is unknown" in passage.refusal
    assert "- and 195 more\n" in passage.refusal
    assert len(faults_of(passage)) == 20


@pytest.mark.parametrize("value", ["s" * 41, {"text": "s" * 60}, ["s" * 60], "7" * 50])
async def test_large_values_are_told_by_their_kind(value: Any) -> None:
    passage = await passing(an_object(n={"type": "boolean"}), json.dumps({"n": value}))
    assert "sssss" not in passage.refusal + str(passage.refused and passage.refused.facts)
    assert "777777" not in passage.refusal


@pytest.mark.parametrize("value", ["hunter2", 12345, {"password": "hunter2"}])
async def test_what_seems_secret_is_never_told(value: Any) -> None:
    schema = {**an_object(api_key={"type": "boolean"}, n={"type": "boolean"}), "required": ["api_key"]}
    passage = await passing(schema, json.dumps({"api_key": value, "n": {"password": "hunter2"}}))
    for secret in ("hunter2", "12345"):
        assert secret not in passage.refusal + str(passage.refused and passage.refused.facts)


# -- the piece of schema


async def piece_of(schema: Schema, arguments: str) -> Any:
    passage = await passing(schema, arguments)
    assert passage.refused is not None
    piece = passage.refused.facts["mcpbridge/schema"]
    assert json.dumps(piece, separators=(",", ":"), ensure_ascii=False) in passage.refusal
    return piece


async def test_the_piece_shows_only_what_the_faults_are_about() -> None:
    schema = {
        **an_object(n={"$ref": "#/$defs/N", "description": "A number"}, other={"type": "string"}, m={"type": "null"}),
        "required": ["n", "other"],
        "$defs": {"N": {"type": "integer", "title": "N"}},
    }
    assert await piece_of(schema, '{"n":true,"other":"x"}') == {
        "type": "object",
        "properties": {"n": {"type": "integer", "description": "A number"}},
        "required": ["n", "other"],
    }


async def test_the_piece_goes_down_to_the_nested_fault() -> None:
    inner = an_object(x={"type": "integer"}, y={"type": "integer"})
    schema = an_object(list={"type": "array", "items": inner})
    assert await piece_of(schema, '{"list":[{"x":1},{"x":{}}]}') == an_object(
        list={"type": "array", "items": an_object(x={"type": "integer"})}
    )


@pytest.mark.parametrize(
    "schema",
    [
        an_object(n={"enum": [f"option number {number}" for number in range(500)], "description": "long " * 300}),
        an_object(n={"type": "object", "properties": {f"p{n}": {"$ref": "#"} for n in range(100)}}),
        an_object(n={"type": "string", "pattern": "^" + "a" * 5000}),
        {**an_object(**{f"{n}" * 30: {"type": "null"} for n in range(50)}), "required": [f"r{n}" for n in range(900)]},
        {"type": "object", "required": ["n" * 3000]},
    ],
)  # fmt: skip
async def test_the_piece_stays_small(schema: Schema) -> None:
    arguments = dict.fromkeys(schema.get("properties", {}), 5)
    piece = await piece_of(schema, json.dumps(arguments))
    assert len(json.dumps(piece, separators=(",", ":"))) <= 1000


# -- telling of what was mended


def test_a_result_that_others_hold_too_is_not_changed() -> None:
    """A cache gives the same result to several calls."""
    shared = Body(b'{"content":[],"_meta":{"theirs":1.10}}')
    told = mark_coerced(shared, [UNWRAPPED.to_json()])
    assert bytes(shared.data) == b'{"content":[],"_meta":{"theirs":1.10}}'
    entry = b'[{"path":"","what":"parsed","from":"a string","to":"an object"}]'
    assert bytes(told.data) == b'{"content":[],"_meta":{"theirs":1.10,"mcpbridge/coerced":%b}}' % entry


def test_a_question_before_the_result_tells_nothing() -> None:
    question = Body(b'{"resultType":"input_required","inputRequests":{}}')
    assert mark_coerced(question, [UNWRAPPED.to_json()]) is question


async def test_a_call_that_is_sent_once_more_is_told_of_too() -> None:
    """A server may want the same call with other headers; its arguments are right by then."""
    stage = ValidateArguments().stage(_Tool(NUMBER), CallOptions())
    assert stage is not None
    call = Call("tools/call", "s", "t", Body(b'{"arguments":{"n":"5"}}'))

    async def unheard(_: Call) -> Body:
        raise UpstreamAnswered("s", b"{}")

    async def deliver(_: Call) -> Body:
        return Body(RESULT)

    with pytest.raises(UpstreamAnswered):
        await stage(call, unheard)
    call.continues = True
    assert b'"mcpbridge/coerced":[{"path":"n",' in bytes((await stage(call, deliver)).data)


async def test_defaults_are_not_tried_one_by_one_where_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 defaults and 8,000 faults in 16 KB took seconds, in which nobody else was served."""
    looks: list[int] = []
    faults = Check.faults

    def count(check: Check, value: object, size: int) -> list[Fault]:
        looks.append(len(found := faults(check, value, size)))
        return found

    monkeypatch.setattr(Check, "faults", count)
    numbers = {f"p{number}": {"type": "integer", "default": number} for number in range(100)}
    schema = an_object(names={"type": "array", "items": {"type": "string"}}, **numbers)
    passage = await passing(schema, json.dumps({"names": [1] * 8000}, separators=(",", ":")))
    assert "must be a string" in passage.refusal
    assert sum(looks) <= 20
    looks.clear()
    crowd = {f"x{number}": 1 for number in range(99)}
    passage = await passing({**schema, "additionalProperties": {"type": "null"}}, json.dumps(crowd))
    assert passage.refused is not None
    assert sum(looks) <= 1000


async def test_defaults_that_fit_are_put_in_beside_much_text_and_beside_one_that_does_not() -> None:
    numbers = {f"p{number}": {"default": number} for number in range(20)}
    schema = {**an_object(text={}, c={}, **numbers), "not": {"required": ["p0", "c"]}}
    passage = await passing(schema, json.dumps({"c": 0, "text": "x" * 20_000}))
    assert passage.arguments is not None
    assert json.loads(passage.arguments).keys() == {"c", "text", *numbers} - {"p0"}


@pytest.mark.parametrize("length", [120, 121])
async def test_of_names_up_to_120_characters_the_nearest_is_told(length: int) -> None:
    """Comparing longer ones takes time, and nobody reads them."""
    known = "n" * (length - 1) + "m"
    refusal = (await passing(an_object(**{known: {"type": "integer"}}) | {"additionalProperties": False}, "{}")).refused
    assert refusal is None
    refused = (
        await passing(an_object(**{known: {}}) | {"additionalProperties": False}, f'{{"{"n" * length}":1}}')
    ).refusal
    assert ("did you mean" in refused) == (length <= 120)
