"""A function in a process of its own: what crosses is data, read as the types that the function declares."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from anyio import fail_after
from hypothesis import given
from hypothesis import strategies as st

from mcpbridge.core.call_options import ResultOptions
from mcpbridge.results.shorten import HeaderLine, result_facts, script_source, shorten, shorten_output
from mcpbridge.sandbox import worker_process
from mcpbridge.sandbox.worker_messages import Request, encode_request, run_request, type_hints
from mcpbridge.sandbox.worker_process import ProcessBroke, in_process

ROWS = [{"id": number, "name": f"näme {number}", "open": number % 2 == 0} for number in range(50)]
RESULT = json.dumps({"content": [{"type": "text", "text": json.dumps(ROWS)}]}).encode()
FAILURE = json.dumps({"content": [{"type": "text", "text": "Error: no\n" * 900}], "isError": True}).encode()
STRUCTURED = json.dumps({"content": [], "structuredContent": {"rows": ROWS}}).encode()
MEDIA = json.dumps({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}).encode()

CALLS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = [
    (result_facts, (RESULT, "estimate"), {}),
    (result_facts, (MEDIA,), {"tokenizer": "estimate"}),
    (result_facts, (b"{}", "estimate"), {}),
    (shorten, (RESULT, ResultOptions(budget=600), HeaderLine("h", "recall"), "estimate"), {}),
    (shorten, (FAILURE, ResultOptions(budget=600), HeaderLine(error="[é]"), "estimate"), {}),
    (shorten, (STRUCTURED, ResultOptions(strategy="truncate", budget=400), HeaderLine(), "o200k"), {}),
    (shorten, (RESULT,), {"how": ResultOptions(), "header": HeaderLine(transforms=False), "tokenizer": "estimate"}),
    (script_source, (RESULT, "estimate"), {}),
    (script_source, (STRUCTURED, "estimate"), {}),
    (script_source, (b'{"content":[{"type":"text","text":"a,b\\n1,2\\n3,4"}]}', "estimate"), {}),
    (shorten_output, (json.dumps(ROWS), ResultOptions(budget=300), HeaderLine("h")), {}),
    (shorten_output, ("\0 ☃ \U0001f600" * 99, ResultOptions(budget=300), HeaderLine()), {}),
]


@pytest.mark.parametrize(("function", "args", "kwargs"), CALLS)
def test_a_request_gives_what_the_function_gives(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    answer = run_request(encode_request(function, *args, **kwargs))
    assert msgspec.msgpack.decode(answer, type=type_hints(function)["return"]) == function(*args, **kwargs)


async def test_a_process_gives_what_the_function_gives() -> None:
    with fail_after(60):
        for function, args, kwargs in (CALLS[3], CALLS[7]):
            assert await in_process(function, *args, **kwargs) == function(*args, **kwargs)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
def test_every_text_crosses_as_it_is(text: str) -> None:
    data = json.dumps({"content": [{"type": "text", "text": text}]}).encode()
    answer = run_request(encode_request(result_facts, data, "estimate"))
    assert msgspec.msgpack.decode(answer, type=type_hints(result_facts)["return"]) == result_facts(data, "estimate")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("subprocess", "run"),
        ("builtins", "eval"),
        ("mcpbridgeevil", "main"),
        ("mcpbridge.results.shorten", "cast"),
        ("mcpbridge.results.shorten", "gc.collect"),
        ("mcpbridge.results.shorten", "__import__"),
        ("mcpbridge.sandbox.worker_messages", "import_module"),
        ("mcpbridge.nowhere", "main"),
        ("", ""),
    ],
)
def test_only_functions_of_ours_are_called(module: str, name: str) -> None:
    with pytest.raises((ValueError, ImportError, AttributeError)):
        run_request(msgspec.msgpack.encode(Request(module, name, {})))


@pytest.mark.parametrize(
    "arguments",
    [
        {"data": "text", "tokenizer": "estimate"},
        {"data": b"{}", "tokenizer": "another"},
        {"data": b"{}", "tokenizer": "estimate", "more": 1},
        {"data": {"a": 1}, "tokenizer": "estimate"},
        {"data": b"{}"},
    ],
)
def test_arguments_of_other_types_are_refused(arguments: dict[str, Any]) -> None:
    raw = {name: msgspec.Raw(msgspec.msgpack.encode(value)) for name, value in arguments.items()}
    request = Request(result_facts.__module__, "result_facts", raw)
    with pytest.raises((msgspec.ValidationError, TypeError, KeyError)):
        run_request(msgspec.msgpack.encode(request))


@pytest.mark.parametrize(
    "answer",
    [
        "b''",
        "b'cos\\nsystem\\n(S\"true\"\\ntR.'",
        "b'\\x80\\x05K*.'",
        "b'\\x81\\xa4kind\\x01'",
        "b'\\xc0'",
        "b'\\xa1\\xff'",
    ],
)
async def test_an_answer_that_is_no_result_is_a_failure_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """A process that hostile data took over sends bytes, and bytes are all that arrives. One is a pickle."""
    (tmp_path / "captured_process.py").write_text(
        f"import sys\nsys.stdin.buffer.read()\nsys.stdout.buffer.write({answer})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(worker_process, "PROGRAM", "captured_process")
    with fail_after(60), pytest.raises(ProcessBroke, match="cannot be read"):
        await in_process(result_facts, RESULT, "estimate")


async def test_a_text_that_cannot_cross_is_a_broken_process() -> None:
    """The caller does the work itself then."""
    with fail_after(60), pytest.raises(ProcessBroke):
        await in_process(shorten_output, "\ud800", ResultOptions(), HeaderLine())
