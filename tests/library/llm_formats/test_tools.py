"""Tools as model APIs take them (issue 9, model formats): names, schemas, limits, against the official types."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, cast

import jsonschema_rs
import pytest
from anthropic.types import ToolParam
from google.genai.types import FunctionDeclaration
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import Tool as McpTool
from msgspec import Struct, field
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from mcpbridge.base.errors import FormatError
from mcpbridge.core.tool_calls_and_results import ToolCall
from mcpbridge.library.llm_formats.format import offered
from mcpbridge.library.llm_formats.gemini import gemini_schema
from mcpbridge.library.llm_formats.messages import FORMATS, Format, name_in
from mcpbridge.library.llm_formats.schemas.plain import plain_schema

TEXT: dict[str, Any] = {"type": "string"}


class Described(Struct, frozen=True):
    name: str
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    description: str = "Does something."

    @property
    def definition(self) -> Mapping[str, Any]:
        return {"name": self.name, "description": self.description, "inputSchema": self.input_schema}


def of_properties(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


# -- names

FITS = {
    "openai": r"^[a-zA-Z0-9_-]{1,64}$",
    "openai-responses": r"^[a-zA-Z0-9_-]{1,64}$",
    "anthropic": r"^[a-zA-Z0-9_-]{1,128}$",
    "gemini": r"^[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}$",
    "mcp": r"(?s).*",
}
NAMES = st.text(min_size=1, max_size=150) | st.text("abc_-.0/", min_size=1, max_size=70)


@pytest.mark.parametrize("api", FORMATS)
@given(names=st.sets(NAMES, max_size=8))
def test_every_name_fits_and_no_two_tools_share_one(api: Format, names: set[str]) -> None:
    """The APIs refuse a whole request for one wrong name."""
    found = {name_in(api, name) for name in names}
    assert len(found) == len(names)
    assert all(re.fullmatch(FITS[api].strip("^$"), name) for name in found)
    again = {name_in(api, name) for name in found | names}  # nobody can take another's name by calling itself so
    assert len(again) == len(found | names)


@pytest.mark.parametrize(
    ("api", "wire", "name"),
    [
        ("openai", "github__create_issue", "github__create_issue"),
        ("openai", "a.b", "a_b_0fzztnxeoxkd6"),
        ("openai", "x" * 64, "x" * 64),
        ("anthropic", "x" * 100, "x" * 100),
        ("gemini", "a.b", "a.b"),
        ("gemini", "3d", "_3d_0"),
        ("mcp", "a b", "a b"),
    ],
)
def test_names_in_formats(api: Format, wire: str, name: str) -> None:
    found = name_in(api, wire)
    assert found.startswith(name)
    assert found == name or re.search(r"_0[a-z2-7]{12}$", found)


# -- tools against the types of the official packages

WEATHER = Described("weather__now", of_properties(["city"], city=TEXT, unit={"enum": ["c", "f"]}), "Weather now.")


def test_tools_for_chat_completions() -> None:
    tools = offered("openai", [WEATHER], strict=True)
    assert tools == [
        {
            "type": "function",
            "function": {
                "name": "weather__now",
                "description": "Weather now.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": TEXT, "unit": {"type": ["string", "null"], "enum": ["c", "f", None]}},
                    "required": ["city", "unit"],
                    "additionalProperties": False,
                },
                "strict": True,
            },
        }
    ]
    assert (tools.format, tools.names, tools.not_strict) == ("openai", {"weather__now": "weather__now"}, {})
    TypeAdapter(list[ChatCompletionFunctionToolParam]).validate_python(tools, strict=True)


def test_tools_for_responses_anthropic_gemini_and_mcp() -> None:
    responses, anthropic, gemini, mcp = (
        offered(api, [WEATHER]) for api in ("openai-responses", "anthropic", "gemini", "mcp")
    )
    assert responses[0].keys() == {"type", "name", "description", "parameters", "strict"}
    assert responses[0]["strict"] is False  # left out, it would be made strict by the API itself
    TypeAdapter(list[FunctionToolParam]).validate_python(responses)
    assert anthropic[0].keys() == {"name", "description", "input_schema"}
    TypeAdapter(list[ToolParam]).validate_python(anthropic)
    assert offered("anthropic", [WEATHER], strict=True)[0]["strict"] is True
    declared = [FunctionDeclaration.model_validate(one) for one in gemini]
    assert declared[0].parameters_json_schema["properties"]["unit"] == {"enum": ["c", "f"]}
    assert McpTool.model_validate(mcp[0]).input_schema == WEATHER.input_schema


@pytest.mark.parametrize("api", ["gemini", "mcp"])
def test_formats_without_strict_tools_say_so(api: str) -> None:
    tools = offered(api, [WEATHER], strict=True)
    assert tools.not_strict == {"weather__now": "is in a format that has no strict tools"}


def test_what_cannot_be_strict_is_sent_as_it_is_and_reported() -> None:
    """Issue 9: what cannot be strict is reported and sent unstrict."""
    loose = Described("any", of_properties(data={"type": "object"}))
    tools = offered("openai", [loose, WEATHER], strict=True)
    assert [tool["function"]["strict"] for tool in tools] == [False, True]
    assert tools[0]["function"]["parameters"]["properties"] == {"data": {"type": "object"}}
    assert tools.not_strict == {"any": "`data` takes properties of any name"}


def test_auto_is_strict_where_nothing_is_lost() -> None:
    sized = Described("sized", of_properties(a={"type": "string", "minLength": 2}))
    tools = offered("openai-responses", [sized, WEATHER], strict="auto")
    assert [tool["strict"] for tool in tools] == [False, True]
    assert tools.not_strict == {"sized": "has rules that strict schemas do not: minLength"}


def test_anthropic_takes_so_many_strict_tools() -> None:
    """Anthropic, structured outputs: limits of a request."""
    many = [Described(f"t{at}", of_properties(["a"], a=TEXT)) for at in range(22)]
    assert list(offered("anthropic", many, strict=True).not_strict) == ["t20", "t21"]
    optional = [Described(f"t{at}", of_properties(**{f"p{n}": TEXT for n in range(10)})) for at in range(3)]
    why = offered("anthropic", optional, strict=True).not_strict
    assert why == {"t2": "brings the request's optional properties to 30, of 24"}


def test_openai_takes_128_tools() -> None:
    many = [Described(f"t{at}") for at in range(129)]
    assert len(offered("openai", many[:128])) == 128
    with pytest.raises(FormatError, match="takes 128 tools in a request, and these are 129"):
        offered("openai", many)
    assert len(offered("anthropic", many)) == 129


def test_an_unknown_format_is_told_with_the_nearest() -> None:
    with pytest.raises(FormatError, match='"open-ai" is no format of a model API; "openai" is'):
        offered("open-ai", [])


def test_a_long_description_is_cut_where_the_api_refuses_it() -> None:
    long = Described("t", description="word " * 400)
    cut = offered("openai", [long])[0]["function"]["description"]
    assert len(cut) <= 1024
    assert cut.endswith("word …")
    assert offered("anthropic", [long])[0]["description"] == long.description
    solid = Described("t", description="x" * 2000)
    assert len(offered("openai", [solid])[0]["function"]["description"]) == 1024


def test_a_tool_that_is_there_twice_is_offered_once() -> None:
    tools = offered("anthropic", [WEATHER, Described("b"), WEATHER])
    assert [tool["name"] for tool in tools] == ["weather__now", "b"]


def test_calls_are_restored_to_wire_names_without_nulls() -> None:
    tools = offered("openai", [Described("a.b", of_properties(x=TEXT))], strict=True)
    (name,) = tools.names
    calls = [ToolCall(name, {"x": None}, "1"), ToolCall("c", {"x": None}, "2"), ToolCall(name, {}, "3", "unreadable")]
    assert [(call.name, call.arguments) for call in tools.restored(calls)] == [
        ("a.b", {}),
        ("c", {"x": None}),
        ("a.b", {}),
    ]


# -- schemas as they are found


class Kind(Enum):
    FILE = "file"
    FOLDER = "folder"


class Point(BaseModel):
    x: float = Field(ge=0, description="To the right")
    y: float = 0.0


class Circle(BaseModel):
    kind: Literal["circle"] = "circle"
    middle: Point


class Square(BaseModel):
    kind: Literal["square"] = "square"
    corners: Annotated[list[Point], Field(min_length=4, max_length=4)]


class Tree(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(min_length=1, pattern="^[a-z]+$")]
    kind: Kind = Kind.FILE
    below: "list[Tree]" = []
    changed: datetime | None = None


class Drawing(BaseModel):
    shapes: list[Annotated[Circle | Square, Field(discriminator="kind")]]
    frame: Square | None = None
    size: int | str = 3


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    labels: dict[str, str] = {}
    pair: tuple[int, str] = (1, "a")
    anything: Any = None


FOUND: dict[str, dict[str, Any]] = {
    **{model.__name__: model.model_json_schema() for model in (Point, Tree, Drawing, Loose)},
    "nothing": {},
    "no arguments": {"type": "object", "properties": {}, "$schema": "http://json-schema.org/draft-07/schema#"},
    "one of two": {**of_properties(a=TEXT, b=TEXT), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
    "alternatives": {"anyOf": [of_properties(["a"], a=TEXT), of_properties(["b"], b=TEXT, a={"type": "integer"})]},
    "referred": {"$ref": "#/definitions/x", "definitions": {"x": of_properties(a=TEXT, b={"$ref": "#/definitions/x"})}},
    "old tuple": of_properties(p={"type": "array", "items": [TEXT, {"type": "number"}], "exclusiveMinimum": True}),
    "malformed": of_properties(
        a={"type": "text"}, b="a string", c={"type": "array"}, d={"type": TEXT, "required": True}
    ),
    "malformed rules": of_properties(
        a={"type": "integer", "minimum": "1", "exclusiveMinimum": True, "enum": []}, title=TEXT, b={"title": TEXT}
    ),
    "odd names": of_properties(["a b"], **{"a b": TEXT, "$filter": TEXT, "ok": TEXT}),
    "conditional": {**of_properties(a=TEXT), "if": {"required": ["a"]}, "then": of_properties(b=TEXT)},
    "away": of_properties(a={"$ref": "https://x.test/s"}, b={"allOf": [TEXT, {"type": "integer"}]}),
    "itself": {**of_properties(["me"], me={"$ref": "#"}), "required": ["me"]},
}
GEMINI = {
    *("$defs", "$ref", "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "minimum"),
    *("maximum", "anyOf", "properties", "additionalProperties", "required", "propertyOrdering"),
}


@pytest.mark.parametrize("found", FOUND)
@pytest.mark.parametrize("api", FORMATS)
def test_every_schema_can_be_offered(api: str, found: str) -> None:
    """The APIs: an object at the top, no alternatives there, a schema that compiles; everything is JSON."""
    tool = offered(api, [Described("t", FOUND[found])])[0]
    json.dumps(tool)
    schema: Any = tool.get("function", tool)
    schema = schema.get("parameters", schema.get("input_schema", schema.get("parametersJsonSchema")))
    if api == "mcp":
        return
    assert schema["type"] == "object"
    assert not schema.keys() & {"anyOf", "oneOf", "allOf", "not", "enum", "$ref", "if"}
    jsonschema_rs.validator_for(schema)
    if api == "gemini":
        assert keywords(schema) <= GEMINI


def keywords(schema: Any) -> set[str]:
    if not isinstance(schema, dict):
        return set()
    part = cast("dict[str, Any]", schema)
    inner = [*part.get("properties", {}).values(), *part.get("$defs", {}).values(), *part.get("anyOf", ())]
    inner += [*part.get("prefixItems", ()), part.get("items"), part.get("additionalProperties")]
    return set(part).union(*map(keywords, inner))


@pytest.mark.parametrize("found", FOUND)
@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_every_schema_is_strict_or_says_why(api: str, found: str) -> None:
    tools = offered(api, [Described("t", FOUND[found])], strict=True)
    function: Any = tools[0].get("function", tools[0])
    assert bool(function.get("strict")) == ("t" not in tools.not_strict)
    strict_for_openai = {
        "Point",
        "Tree",
        "Drawing",
        "nothing",
        "no arguments",
        "one of two",
        "referred",
        "odd names",
        "itself",
    }
    if api == "openai":
        assert bool(function["strict"]) == (found in strict_for_openai), tools.not_strict


VALID: dict[str, list[dict[str, Any]]] = {
    "Point": [{"x": 1}, {"x": 2, "y": 3}],
    "Tree": [{"name": "a"}, {"name": "a", "below": [{"name": "b", "kind": "folder"}], "changed": None}],
    "Drawing": [{"shapes": [{"kind": "circle", "middle": {"x": 1}}], "size": "s"}],
    "Loose": [{"labels": {"a": "b"}, "pair": [1, "x"], "anything": [1], "more": 2}],
    "alternatives": [{"a": "x"}, {"b": "x", "a": 3}],
    "one of two": [{"a": "x"}],
    "referred": [{"a": "x", "b": {"b": {}}}],
    "old tuple": [{"p": ["x", 1]}],
    "odd names": [{"a b": "x", "$filter": "y", "ok": "z"}],
    "conditional": [{"a": "x", "b": "y"}],
}


@pytest.mark.parametrize("found", VALID)
@pytest.mark.parametrize("rewritten", [plain_schema, gemini_schema])
def test_rewriting_refuses_nothing_that_the_schema_takes(rewritten: Any, found: str) -> None:
    """Promise of the formats: a rule may be left out, for the bridge checks the call; none is added."""
    for arguments in VALID[found]:
        assert jsonschema_rs.is_valid(rewritten(FOUND[found]), arguments)


def test_what_gemini_cannot_be_told_is_told_in_words() -> None:
    schema = of_properties(
        a={"type": "string", "pattern": "^a", "description": "Text."},
        b={"const": "x"},
        c={"type": "boolean", "const": True},
        d={"oneOf": [{"type": "integer", "exclusiveMinimum": 0}, {"type": "null"}], "default": 3},
        e={"type": "array", "items": TEXT, "maxItems": 500, "minItems": 1},
    )
    assert gemini_schema(schema)["properties"] == {
        "a": {"type": "string", "description": 'Text. (pattern: "^a")'},
        "b": {"enum": ["x"]},
        "c": {"type": "boolean", "description": "(const: true)"},
        "d": {
            "anyOf": [{"type": "integer", "description": "(exclusiveMinimum: 0)"}, {"type": "null"}],
            "description": "(default: 3)",
        },
        "e": {"type": "array", "minItems": 1, "items": TEXT, "description": "(maxItems: 500)"},
    }


def test_gemini_takes_cycles_through_optional_properties_alone() -> None:
    """Gemini, JSON Schema support: cyclic references may only be used within non-required properties."""
    node = of_properties(["must"], must={"$ref": "#/$defs/node"}, may={"$ref": "#/$defs/node", "description": "More"})
    written = gemini_schema({**of_properties(n={"$ref": "#/$defs/node"}), "$defs": {"node": node}})
    assert written["$defs"]["node"]["properties"] == {
        "must": {},
        "may": {"anyOf": [{"$ref": "#/$defs/node"}], "description": "More"},
    }
