"""The strict forms of schemas, and the way back (issue 9, model formats)."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mcpbridge.library.llm_formats.gemini import gemini_schema
from mcpbridge.library.llm_formats.schemas.from_strict import unstricted
from mcpbridge.library.llm_formats.schemas.parts import Unsayable
from mcpbridge.library.llm_formats.schemas.plain import plain_schema
from mcpbridge.library.llm_formats.schemas.strict import strict_form
from mcpbridge.library.llm_formats.schemas.strict_limits import ANTHROPIC, OPENAI, Spent, refuse_too_large, spending

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}


def of_properties(required: list[str] | None = None, **properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": required or []}


def strict(schema: Schema) -> Schema:
    return strict_form(schema, OPENAI).schema


# -- random schemas that have a strict form, and values of them

NAMES = st.sampled_from(["a", "b", "c", "kind", "größe"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "x", "yy"]), st.sampled_from([0.5, 1.0])
)


def _scalar_schemas() -> st.SearchStrategy[Schema]:
    kinds = st.lists(
        st.sampled_from(["string", "integer", "number", "boolean", "null"]), min_size=1, max_size=3, unique=True
    )
    return st.one_of(
        st.builds(lambda kind: {"type": kind[0] if len(kind) == 1 else kind}, kinds),
        st.builds(
            lambda low, title: {"type": "integer", "minimum": low, "title": title, "default": 1},
            st.integers(-2, 1),
            st.text(max_size=3),
        ),
        st.builds(lambda least: {"type": "string", "minLength": least, "description": "text"}, st.integers(0, 2)),
        st.builds(lambda values: {"enum": values}, st.lists(SCALARS, min_size=1, max_size=3)),
        st.builds(lambda value: {"const": value}, SCALARS),
        st.just({"$ref": "#/$defs/leaf"}),
        st.just({"$ref": "#/$defs/node", "description": "another"}),
    )


def _objects(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    @st.composite
    def one(draw: st.DrawFn) -> Schema:
        properties = draw(st.dictionaries(NAMES, inner, min_size=1, max_size=3))
        required = [name for name in properties if draw(st.booleans())]
        schema: Schema = {"type": "object", "properties": properties, "required": required}
        if draw(st.booleans()):
            schema["additionalProperties"] = False
        return schema

    return one()


SCHEMAS = st.recursive(
    _scalar_schemas(),
    lambda inner: st.one_of(
        _objects(inner),
        st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(1, 3)),
        st.builds(lambda some: {"anyOf": some}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda some: {"oneOf": some}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda one: {"allOf": [one], "description": "one"}, inner),
        st.builds(lambda one, other: {"allOf": [one, other]}, _objects(inner), _objects(inner)),
        st.builds(lambda one, other: {"allOf": [one], "anyOf": [other]}, inner, inner),
    ),
    max_leaves=6,
)
DEFINITIONS: Schema = {
    "leaf": {"type": ["string", "null"], "enum": ["x", "yy", None]},
    "node": of_properties(["kind"], kind=TEXT, next={"$ref": "#/$defs/node"}, note=TEXT),
}
ROOTS = _objects(SCHEMAS).map(lambda root: {**root, "$defs": DEFINITIONS})


@st.composite
def values(draw: st.DrawFn, root: Schema, schema: Schema, *, full: bool, level: int = 0) -> Any:
    """A value that the schema probably takes, of described properties alone. `full`: with all of them."""
    if level > 8:
        return None
    if "$ref" in schema:
        target = root["$defs"][schema["$ref"].rsplit("/", 1)[-1]] if schema["$ref"] != "#" else root
        return draw(values(root, target, full=full, level=level + 1))
    if "allOf" in schema:
        each = [draw(values(root, one, full=full, level=level + 1)) for one in schema["allOf"]]
        objects = [one for one in each if isinstance(one, dict)]
        return {name: value for one in objects for name, value in one.items()} if len(objects) > 1 else each[0]
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            branch = draw(st.sampled_from(schema[keyword]))
            return draw(values(root, branch, full=full, level=level + 1))
    if "enum" in schema or "const" in schema:
        return draw(st.sampled_from(schema.get("enum", [schema.get("const")])))
    kind = schema["type"] if isinstance(schema["type"], str) else draw(st.sampled_from(schema["type"]))
    match kind:
        case "object":
            found: dict[str, Any] = {}
            for name, one in schema["properties"].items():
                if full or name in schema["required"] or draw(st.booleans()):
                    found[name] = draw(values(root, one, full=full, level=level + 1))
            return found
        case "array":
            items = values(root, schema["items"], full=full, level=level + 1)
            return draw(st.lists(items, max_size=min(2, schema.get("maxItems", 2))))
        case "string":
            return draw(st.sampled_from(["", "x", "yy", "zzz"]))
        case "integer":
            return draw(st.integers(-3, 3))
        case "number":
            return draw(st.sampled_from([0.5, 2]))
        case "boolean":
            return draw(st.booleans())
        case _:
            return None


def with_nulls(root: Schema, strict_root: Schema, written: Schema, value: Any) -> Any:
    """A value with null for each property that it lacks: what a model writes that means the same."""
    if "$ref" in written:
        name = written["$ref"].rsplit("/", 1)[-1]
        return with_nulls(
            root, strict_root, strict_root if written["$ref"] == "#" else strict_root["$defs"][name], value
        )
    if "anyOf" in written:
        for branch in written["anyOf"]:
            filled = with_nulls(root, strict_root, branch, value)
            if jsonschema_rs.is_valid({**branch, "$defs": strict_root.get("$defs", {})}, filled):
                return filled
        return value
    if isinstance(value, dict) and "properties" in written:
        properties = written["properties"]
        return {
            **{
                name: with_nulls(root, strict_root, properties[name], one)
                for name, one in value.items()
                if name in properties
            },
            **{name: None for name in properties if name not in value},
        }
    if isinstance(value, list) and "items" in written:
        return [with_nulls(root, strict_root, written["items"], one) for one in value]
    return value


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.data())
def test_what_a_schema_takes_its_strict_form_takes_with_nulls(data: st.DataObject) -> None:
    """Promise of the strict form: it narrows nothing that is described."""
    root = data.draw(ROOTS)
    try:
        written = strict_form(root, OPENAI)
    except Unsayable:
        assume(False)
        raise
    value = data.draw(values(root, root, full=False))
    assume(jsonschema_rs.is_valid(root, value))
    form = written.schema
    filled = with_nulls(root, form, form, value)
    assert jsonschema_rs.is_valid(form, filled), (root, form, value, filled)
    if "oneOf" not in written.dropped:  # with a null more, several of them may hold
        assert jsonschema_rs.is_valid(root, unstricted(filled, root)), (root, form, value, filled)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.data())
def test_what_a_strict_form_takes_is_right_once_the_nulls_are_out(data: st.DataObject) -> None:
    """Promise of the strict form: wrong is only what breaks a rule that it says it dropped."""
    root = data.draw(ROOTS)
    try:
        form = strict_form(root, OPENAI)
    except Unsayable:
        assume(False)
        raise
    assume(not form.dropped)
    value = data.draw(values(form.schema, form.schema, full=True))
    assume(jsonschema_rs.is_valid(form.schema, value))
    assert jsonschema_rs.is_valid(root, unstricted(value, root)), (root, form.schema, value, unstricted(value, root))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_right_arguments_stay_as_they_are(data: st.DataObject) -> None:
    """Promise of the way back: it may be gone by any call, strict or not."""
    root = data.draw(ROOTS)
    value = data.draw(values(root, root, full=False))
    assume(jsonschema_rs.is_valid(root, value))
    assert jsonschema_rs.is_valid(root, unstricted(value, root))


@settings(max_examples=100, deadline=None)
@given(ROOTS)
def test_a_strict_form_is_what_the_api_asks_for(root: Schema) -> None:
    """OpenAI, structured outputs: closed objects, all properties required, known keywords, a type everywhere."""
    try:
        form = strict(root)
    except Unsayable:
        return
    jsonschema_rs.validator_for(form)
    check_strict(form)


def check_strict(part: Schema, *, requires_all: bool = True) -> None:
    assert part.keys() <= ALLOWED, part.keys() - ALLOWED
    assert "type" in part or "anyOf" in part or "$ref" in part, part
    if "$ref" in part:
        assert part.keys() == {"$ref"}
    if part.get("type") == "object":
        assert part["additionalProperties"] is False
        if requires_all:
            assert part["required"] == list(part["properties"])
    if part.get("type") == "array":
        assert "items" in part
    inner = [*part.get("properties", {}).values(), *part.get("anyOf", ()), *part.get("$defs", {}).values()]
    for one in [*inner, *([part["items"]] if "items" in part else [])]:
        check_strict(one, requires_all=requires_all)


ALLOWED = {
    *("type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "$ref", "$defs"),
    *("description", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minItems", "maxItems"),
}


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_other_rewriting_refuses_nothing_that_the_schema_takes(data: st.DataObject) -> None:
    """Promise of the formats: rules are left out there, and none is added."""
    root = data.draw(ROOTS)
    value = data.draw(values(root, root, full=False))
    assume(jsonschema_rs.is_valid(root, value))
    assert jsonschema_rs.is_valid(plain_schema(root), value), root
    assert jsonschema_rs.is_valid(gemini_schema(root), value), (root, gemini_schema(root))


# -- single rules


def test_optional_properties_are_required_and_may_be_null() -> None:
    """OpenAI, structured outputs."""
    inner = of_properties(d={"type": "boolean"})
    form = strict(of_properties(["a"], a=TEXT, b=TEXT, c=inner))
    nullable = {"type": ["boolean", "null"]}
    closed = {"type": "object", "properties": {"d": nullable}, "required": ["d"], "additionalProperties": False}
    assert form == {
        "type": "object",
        "properties": {
            "a": TEXT,
            "b": {"type": ["string", "null"]},
            "c": {"anyOf": [closed, {"type": "null"}]},
        },
        "required": ["a", "b", "c"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (TEXT, {"type": ["string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"enum": ["x", 1]},
            {"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "integer", "enum": [1]}, {"type": "null"}]},
        ),
        ({"const": "x"}, {"type": ["string", "null"], "enum": ["x", None]}),
        ({"type": "array", "items": TEXT}, {"anyOf": [{"type": "array", "items": TEXT}, {"type": "null"}]}),
        ({"type": "string", "format": "uri"}, {"type": ["string", "null"], "description": '(format: "uri")'}),
        ({"type": "string", "format": "date"}, {"type": ["string", "null"], "format": "date"}),
        (
            {"type": "integer", "title": "T", "default": 3, "examples": [1], "$comment": "c"},
            {"type": ["integer", "null"], "description": "(default: 3)"},
        ),
        (
            {"type": "string", "description": "Text.", "minLength": 1},
            {"type": ["string", "null"], "description": "Text. (minLength: 1)"},
        ),
        ({"type": "string", "pattern": "^a+$"}, {"type": ["string", "null"], "pattern": "^a+$"}),
        ({"type": "string", "pattern": "(?=a)"}, {"type": ["string", "null"], "description": '(pattern: "(?=a)")'}),
        ({"type": ["integer", "string"]}, {"anyOf": [{"type": "integer"}, TEXT, {"type": "null"}]}),
        ({"type": "null"}, {"type": "null"}),
        ({"oneOf": [{"const": 1}, TEXT]}, {"anyOf": [{"type": "integer", "enum": [1]}, TEXT, {"type": "null"}]}),
        ({"allOf": [{"type": "number"}, {"minimum": 0}, {"minimum": 1}]}, {"type": ["number", "null"], "minimum": 1}),
    ],
    ids=str,
)
def test_an_optional_property_in_strict_form(schema: Schema, written: Schema) -> None:
    assert strict(of_properties(p=schema))["properties"]["p"] == written


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (of_properties(p={"type": "object"}), "`p` takes properties of any name"),
        (of_properties(p={"type": "object", "additionalProperties": TEXT}), "`p` takes properties of any name"),
        ({"type": "object", "properties": {"a": TEXT}, "additionalProperties": True}, "takes properties of any name"),
        (of_properties(p={}), "`p` takes values of any type"),
        (of_properties(p=True), "`p` takes any value"),
        (of_properties(p={"type": "array"}), "`p` has elements of any kind"),
        (of_properties(p={"type": "array", "prefixItems": [TEXT]}), "`p` has `prefixItems`"),
        (of_properties(p={"type": "object", "patternProperties": {"^a": {}}}), "`p` has `patternProperties`"),
        (of_properties(p={"not": TEXT}), "`p` has `not`"),
        ({**of_properties(a=TEXT), "if": {"required": ["a"]}, "then": {}}, "has `if`"),
        ({**of_properties(a=TEXT), "dependentRequired": {"a": ["b"]}}, "has `dependentRequired`"),
        ({"anyOf": [of_properties(a=TEXT), of_properties(b=TEXT)]}, "is one of several schemas as a whole"),
        ({"type": "array", "items": {}}, "is not of type object"),
        (of_properties(["x"], a=TEXT), "requires `x`, which it does not describe"),
        (of_properties(p={"type": "text"}), "has a `type` that is none of JSON's"),
        (
            of_properties(p={"$ref": "https://x.test/s"}),
            "refers to 'https://x.test/s', which is not a part of it that says anything",
        ),
        (
            {**of_properties(p={"$ref": "#/$defs/a"}), "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, TEXT]}}},
            "`p` refers to itself without end",
        ),
        (of_properties(p={"enum": [{"a": 1}]}), "`p` lists values that are objects or arrays"),
        (of_properties(p={"allOf": [TEXT, {"type": "integer"}]}), "`p` combines parts of different types"),
    ],
    ids=lambda case: case if isinstance(case, str) else "of",
)
def test_what_cannot_be_strict_says_why(schema: Schema, why: str) -> None:
    with pytest.raises(Unsayable) as caught:
        strict(schema)
    assert str(caught.value) == why


def test_demands_on_presence_are_left_to_the_bridge() -> None:
    """A common pattern: one of two properties has to be there."""
    schema = {
        **of_properties(a=TEXT, b=TEXT),
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    form = strict_form(schema, OPENAI)
    assert (list(form.schema["properties"]), form.dropped) == (["a", "b"], ("anyOf",))


def test_recursive_schemas_are_strict_for_one_api_and_not_for_the_other() -> None:
    root = {
        "$ref": "#/definitions/tree",
        "definitions": {
            "tree": of_properties(
                ["v"], v={"type": "integer"}, kids={"type": "array", "items": {"$ref": "#/definitions/tree"}}
            )
        },
    }
    form = strict(root)
    assert form["$defs"]["tree"]["properties"]["kids"]["anyOf"][0]["items"] == {"$ref": "#/$defs/tree"}
    filled = {"v": 1, "kids": [{"v": 2, "kids": None}]}
    assert jsonschema_rs.is_valid(form, filled)
    assert unstricted(filled, root) == {"v": 1, "kids": [{"v": 2}]}
    with pytest.raises(Unsayable, match="refers to itself"):
        strict_form(root, ANTHROPIC)


def test_anthropic_keeps_optional_properties_optional() -> None:
    """Anthropic, strict tool use: `required` stays, sizes are told in words."""
    form = strict_form(of_properties(["a"], a={"type": "integer", "minimum": 1}, b=TEXT), ANTHROPIC)
    assert form.schema == {
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "(minimum: 1)"}, "b": TEXT},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert form.dropped == ("minimum",)
    assert spending(form.schema) == Spent(tools=1, optional=1, unions=0)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (of_properties(**{f"p{at}": TEXT for at in range(5001)}), "5,001 properties"),
        (of_properties(p={"enum": [f"v{at}" for at in range(1001)]}), "1,001 listed values"),
        (
            of_properties(p={"enum": [f"{at:0100}" for at in range(300)]}),
            "values of more than 15,000 characters in one place",
        ),
        (of_properties(**{"n" * 120_001: TEXT}), "120,001 characters"),
    ],
    ids=["properties", "values", "long values", "names"],
)
def test_limits_of_strict_schemas(schema: Schema, why: str) -> None:
    """OpenAI, structured outputs: limits."""
    with pytest.raises(Unsayable, match=why):
        refuse_too_large(strict(schema))


def test_levels_of_strict_schemas_are_counted() -> None:
    """OpenAI, structured outputs: ten levels."""
    schema: Schema = TEXT
    for _ in range(10):
        schema = of_properties(["p"], p=schema)
    refuse_too_large(strict(schema))
    with pytest.raises(Unsayable, match="11 levels"):
        refuse_too_large(strict(of_properties(["p"], p=schema)))


# -- the way back


@pytest.mark.parametrize(
    ("schema", "strict_arguments", "arguments"),
    [
        (of_properties(a=TEXT), {"a": None}, {}),
        (of_properties(["a"], a=TEXT), {"a": None}, {"a": None}),
        (of_properties(a={"type": ["string", "null"]}), {"a": None}, {"a": None}),
        (of_properties(a={"anyOf": [TEXT, {"type": "null"}]}), {"a": None}, {"a": None}),
        (of_properties(a={"enum": ["x", None]}), {"a": None}, {"a": None}),
        (of_properties(a={"not": TEXT}), {"a": None}, {"a": None}),
        (of_properties(), {"other": None}, {"other": None}),
        (
            of_properties(each={"type": "array", "items": of_properties(a=TEXT)}),
            {"each": [{"a": None}, {"a": "x"}]},
            {"each": [{}, {"a": "x"}]},
        ),
        ({"allOf": [of_properties(a=TEXT), of_properties(["b"], b=TEXT)]}, {"a": None, "b": None}, {"b": None}),
        (
            {**of_properties(a=TEXT, b=TEXT), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            {"a": None, "b": "x"},
            {"b": "x"},
        ),
        (
            of_properties(
                c={
                    "anyOf": [
                        of_properties(["k"], k={"const": 1}, n=TEXT),
                        of_properties(["k"], k={"const": 2}, n={"type": ["string", "null"]}),
                    ]
                }
            ),
            {"c": {"k": 2, "n": None}},
            {"c": {"k": 2, "n": None}},
        ),
        ({"type": "object", "additionalProperties": of_properties(a=TEXT)}, {"x": {"a": None}}, {"x": {}}),
        (
            of_properties(t={"type": "array", "prefixItems": [of_properties(a=TEXT)]}),
            {"t": [{"a": None}, None]},
            {"t": [{}, None]},
        ),
    ],
    ids=str,
)
def test_nulls_that_were_not_meant_are_taken_out(schema: Schema, strict_arguments: Schema, arguments: Schema) -> None:
    assert unstricted(strict_arguments, schema) == arguments


def test_alternatives_without_end_cost_no_time_without_end() -> None:
    """A schema is somebody else's: what it asks for is bounded."""
    node = {
        "anyOf": [
            of_properties(["n", "x"], n={"$ref": "#/$defs/node"}),
            of_properties(["n"], n={"$ref": "#/$defs/node"}),
            {"type": "null"},
        ]
    }
    root = {**of_properties(n={"$ref": "#/$defs/node"}), "$defs": {"node": node}}
    value: Any = None
    for _ in range(60):
        value = {"n": value}
    assert unstricted({"n": value, "other": None}, root)


# -- schemas of several parts

AB = of_properties(["a"], a=TEXT, b=TEXT)


def one_property(schema: Schema) -> Schema:
    """A property's strict form, where the property is required."""
    return strict({**of_properties(["p"], p=schema), "$defs": {"ab": AB, "text": TEXT}})["properties"]["p"]


def closed(**properties: Any) -> Schema:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


NULLABLE = {"type": ["string", "null"]}


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"allOf": [AB, of_properties(["b"], c=TEXT)]}, closed(a=TEXT, b=TEXT, c=NULLABLE)),
        ({"allOf": [AB, of_properties(a={"enum": ["x"]})]}, closed(a={"type": "string", "enum": ["x"]}, b=NULLABLE)),
        ({"allOf": [AB, {"additionalProperties": False}]}, "`p` combines parts that exclude each other's properties"),
        ({"allOf": [AB, True]}, closed(a=TEXT, b=NULLABLE)),
        ({"allOf": [AB, False]}, "`p` takes no value"),
        ({"allOf": [{"enum": [1, "x"]}, {"enum": ["x", True]}]}, {"type": "string", "enum": ["x"]}),
        ({"allOf": [{"type": ["number", "string"]}, {"type": "integer"}]}, {"type": "integer"}),
        (
            {"allOf": [{"type": "integer", "maximum": 3}, {"type": "number", "maximum": 2}]},
            {"type": "integer", "maximum": 2},
        ),
        ({"allOf": [{"type": "integer", "maximum": 3}, {"maximum": "2"}]}, "`p` has the limit '2', which is no number"),
        ({"allOf": [{**TEXT, "pattern": "a"}, {"pattern": "b"}]}, "`p` says two things of `pattern`"),
        (
            {"allOf": [{"type": "array", "items": TEXT}, {"items": {"enum": ["x"]}}]},
            {"type": "array", "items": {"type": "string", "enum": ["x"]}},
        ),
        ({"allOf": [{"type": "object", "additionalProperties": True}, {"additionalProperties": False}]}, closed()),
        ({"$ref": "#/$defs/ab", "required": ["b"]}, closed(a=TEXT, b=TEXT)),
        ({"$ref": "#/$defs/ab", "description": "Both."}, {"anyOf": [{"$ref": "#/$defs/ab"}], "description": "Both."}),
        (
            {"allOf": [{"$ref": "#/$defs/text"}], "default": "x"},
            {"anyOf": [{"$ref": "#/$defs/text"}], "description": '(default: "x")'},
        ),
        (
            {"type": "string", "anyOf": [{"enum": ["x"]}, {"pattern": "y"}]},
            {"anyOf": [{"type": "string", "enum": ["x"]}, {"type": "string", "pattern": "y"}]},
        ),
        (
            {**AB, "anyOf": [of_properties(c=TEXT), of_properties(d=TEXT)]},
            {"anyOf": [closed(c=NULLABLE, a=TEXT, b=NULLABLE), closed(d=NULLABLE, a=TEXT, b=NULLABLE)]},
        ),
        ({"anyOf": [TEXT], "oneOf": [TEXT]}, "`p` has both `anyOf` and `oneOf`"),
        ({"anyOf": []}, "`p` has no alternatives in `anyOf`"),
        ({"anyOf": [TEXT, True]}, "`p` takes any value"),
        ({"type": "string", "anyOf": [{"type": "integer"}]}, "`p` combines parts of different types"),
        ({"const": "x", "enum": ["x", "y"]}, {"type": "string", "enum": ["x"]}),
        ({"type": "number", "enum": [1, 2.5]}, {"type": "number", "enum": [1, 2.5]}),
        ({"type": "integer", "enum": [1, 2.5]}, {"type": "integer", "enum": [1]}),
        ({"type": "integer", "enum": ["x"]}, "`p` takes no value"),
        ({"enum": [None]}, {"type": "null"}),
        ({"type": "object", "properties": {"no": False, "a": TEXT}, "required": ["a"]}, closed(a=TEXT)),
    ],
    ids=[f"case {at}" for at in range(1, 28)],
)
def test_parts_of_a_schema_are_told_as_one(schema: Schema, written: Schema | str) -> None:
    if isinstance(written, str):
        with pytest.raises(Unsayable) as caught:
            one_property(schema)
        assert str(caught.value) == written
    else:
        assert one_property(schema) == written


def test_parts_of_one_name_stay_apart() -> None:
    """Definitions may be in several places, and have one place in strict schemas."""
    root = of_properties(["p", "q"], p={"$ref": "#/$defs/x"}, q={"$ref": "#/definitions/x"})
    form = strict({**root, "$defs": {"x": TEXT}, "definitions": {"x": {"type": "integer"}}})
    assert form["properties"] == {"p": {"$ref": "#/$defs/x"}, "q": {"$ref": "#/$defs/x_1"}}
    assert form["$defs"] == {"x": TEXT, "x_1": {"type": "integer"}}
    assert (
        gemini_schema({**root, "$defs": {"x": TEXT}, "definitions": {"x": {"type": "integer"}}})["$defs"]
        == form["$defs"]
    )
