"""gRPC backends against a real server: what they offer, how calls go, and what becomes of failures."""

import base64
import json
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import grpc
import jsonschema_rs
import pytest
import trustme
from google.protobuf import any_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mcpbridge.base.errors import (
    ArgumentsRefused,
    ConfigError,
    UnknownName,
    UpstreamGarbled,
    UpstreamGone,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from mcpbridge.protocol.deadlines import Timeouts
from mcpbridge.tools import serving as discovering
from mcpbridge.tools.grpc.channel import metadata_of, open_channel
from mcpbridge.tools.grpc.message_types import DescriptorsInvalidError, Types, load
from mcpbridge.tools.grpc.methods import GrpcMethod, methods_of
from mcpbridge.tools.grpc.reflection import KnownServices, Reflection, Server
from mcpbridge.tools.grpc.settings import GrpcSettings
from mcpbridge.tools.serving import Discovery
from support.backends.backend_calls import SECRET, call_of, found, made, result, text_of, until
from support.backends.grpc_peer import Peer, descriptor_set, grpc_peer, pool

ORDERS = "shop.v1.Orders"


@pytest.fixture(scope="module")
async def shared() -> AsyncGenerator[Peer]:
    """One server for the tests that leave it as it was."""
    async with grpc_peer() as peer:
        yield peer


@pytest.fixture(autouse=True)
def _tries_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovering, "FIRST_DELAY", 0.05)
    monkeypatch.setattr(discovering, "SPACING", 0.05)


EVERYTHING = {
    "title": "t",
    "bigNumber": "9007199254740993",
    "small": 7,
    "huge": "18446744073709551615",
    "ratio": 0.5,
    "isNew": True,
    "blob": base64.b64encode(b"\x00\xff").decode(),
    "color": "RED",
    "item": {"sku": "a", "count": 1},
    "items": [{"sku": "b", "count": -2}],
    "words": ["x", "y"],
    "when": "2026-01-02T03:04:05Z",
    "howLong": "1.500s",
    "extra": {"a": [1.0, None, {"b": "c"}]},
    "free": "anything",
    "whatever": {"@type": "type.googleapis.com/shop.v1.Item", "sku": "any", "count": 3},
    "mask": "title,items.sku",
    "maybe": "5",
    "stock": {"here": 4},
    "shelves": {"12": {"sku": "s", "count": 0}},
    "tree": {"label": "root", "children": [{"label": "leaf", "children": []}]},
    "byPoints": 9,
}


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_all_methods_of_a_server_become_tools_through_either_version_of_reflection(version: str) -> None:
    """Promise of the issue: schema through server reflection."""
    async with grpc_peer(reflects=version) as peer:
        backend = made("shop", "grpc", grpc=peer.address)
        assert backend.condition.state == "starting"
        assert not backend.tools
        async with found(backend) as changes:
            assert changes() == 1
            names = {tool["name"] for tool in backend.tools}
            assert {"shop.v1.Orders.GetOrder", "shop.v2.Orders.GetOrder", "Bills_GetBill"} <= names
            assert "Orders_Echo" in names
            assert not [name for name in names if "Reflection" in name or "Health" in name]
            got = await result(backend, "shop.v2.Orders.GetOrder", {"id": 3})
            assert got["structuredContent"]["note"] == "order 3"


@contextmanager
def threaded(handlers: Sequence[grpc.GenericRpcHandler] = (), reflects: Sequence[str] = ()) -> Generator[str]:
    """The address of a server of the older kind, which ends calls from other threads, so at any moment."""
    server = grpc.server(ThreadPoolExecutor(2), handlers=handlers)
    if reflects:
        reflection.enable_server_reflection(reflects, server, pool=pool())
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


async def test_the_older_reflection_is_found_each_time_where_the_newer_is_missing() -> None:
    """A server that ends our first stream while we still write to it must not be taken for one with a fault."""
    libraries = load()
    known = KnownServices(libraries)
    with threaded(reflects=[ORDERS]) as address:
        settings = GrpcSettings.model_validate({"grpc": address})
        for _ in range(50):
            async with open_channel(libraries, settings, Path()) as channel:
                asked = Reflection(Server(libraries, known, channel, metadata_of(settings)))
                assert await asked.services() == [ORDERS]
                assert (await asked.types([ORDERS])).service(ORDERS) is not None


async def test_a_method_that_the_server_lacks_is_told_as_that_each_time(tmp_path: Path) -> None:
    """The status of a call that the server ends at once reaches the model."""
    (tmp_path / "shop.pb").write_bytes(descriptor_set())
    with threaded() as address:
        backend = made("shop", "grpc", tmp_path, grpc=address, descriptor="shop.pb", service=ORDERS)
        async with found(backend):
            for tool in ["GetOrder", "Watch"] * 20:
                assert "UNIMPLEMENTED: Method not found" in text_of(await result(backend, tool, {"id": 1}))
            for _ in range(20):  # what goes as a stream may lose its status, and then it says so
                said = text_of(await result(backend, "Mirror", {"messages": [{"sku": "a"}]}))
                assert "UNIMPLEMENTED" in said or "why is not known" in said


async def test_an_answer_that_is_none_is_told_as_such(tmp_path: Path) -> None:
    """No peer's answer is an error of Python's."""
    (tmp_path / "shop.pb").write_bytes(descriptor_set())

    def handler(answers: list[bytes]) -> Any:
        return grpc.stream_stream_rpc_method_handler(lambda _requests, _context: iter(answers))

    handlers = {"GetOrder": handler([b"\xff"]), "Watch": handler([b"\xff"]), "Ping": handler([])}
    unknown = any_pb2.Any(type_url="type.googleapis.com/no.Such").SerializeToString()
    handlers["Echo"] = handler([b"\x82\x01" + bytes([len(unknown)]) + unknown])  # the field `whatever`
    with threaded([grpc.method_handlers_generic_handler(ORDERS, handlers)]) as address:
        backend = made("shop", "grpc", tmp_path, grpc=address, descriptor="shop.pb", service=ORDERS)
        async with found(backend):
            for tool in ("GetOrder", "Watch"):
                with pytest.raises(UpstreamGarbled, match=r"no shop\.v1\.Order"):
                    await result(backend, tool, {"id": 1})
            with pytest.raises(UpstreamGarbled, match=r"JSON: .*no\.Such"):
                await result(backend, "Echo", {})
            try:
                assert (await result(backend, "Ping", {}))["isError"]
            except UpstreamGarbled:
                pass


async def test_credentials_that_come_back_are_masked(shared: Peer) -> None:
    """Promise of the house: secrets never reach results; neither its own nor those of the configuration."""
    own, binary = "own-credential-1", base64.b64encode(b"own-credential-2").decode()
    metadata = {"Authorization": f"Bearer {own}", "auth-bin": binary}
    backend = made("shop", "grpc", grpc=shared.address, service=ORDERS, metadata=metadata)
    async with found(backend):
        secrets = [own, f"so {own}\n", "own-credential-2", SECRET]
        heard: list[dict[str, Any]] = []
        told = {"title": SECRET, "words": secrets, "extra": {own: [own]}, "stock": {own: 1}}
        got = [await result(backend, "Echo", told)]
        assert got[0]["structuredContent"]["words"] == ["[redacted]", "so [redacted]\n", "[redacted]", "[redacted]"]
        assert got[0]["structuredContent"]["stock"] == {"[redacted]": 1}
        long = {"sku": (own + "x" * 480)[::-1]}
        got.append(await result(backend, "Mirror", {"messages": [{"sku": own[::-1]}, long]}, heard=heard))
        got.append(await result(backend, "Fail", {"code": 13, "text": f"no, {own}"}))
        assert len(heard) == 2
        assert "own-cred" not in json.dumps([got, heard])
        assert SECRET not in json.dumps(got)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [("", ""), ("missing", "does not hand out shop/types.proto"), ("garbage", "descriptors cannot be read")],
)
async def test_files_that_come_one_by_one_are_put_together(broken: str, reason: str) -> None:
    """Servers differ in how much they send at once; files that come with protobuf are known here."""
    async with grpc_peer(reflects=f"sparse {broken}") as peer:
        backend = made("shop", "grpc", grpc=peer.address)
        if reason:
            async with found(backend, "failed"):
                assert reason in backend.condition.reason
            return
        async with found(backend):
            assert "shop.v2.Orders.GetOrder" in {tool["name"] for tool in backend.tools}
            got = await result(backend, "Orders_Echo", EVERYTHING)
            assert got["structuredContent"] == EVERYTHING


def test_files_that_do_not_belong_together_are_refused() -> None:
    """What a server sends is not trusted to fit."""
    libraries = load()
    one, other = FileDescriptorProto(name="a", dependency=["b"]), FileDescriptorProto(name="b", dependency=["a"])
    lost = FileDescriptorProto(name="c", package="p")
    lost.message_type.add(name="M").field.add(name="f", number=1, label=1, type=11, type_name=".p.Nothing")
    for files, reason in (([one, other], "import each other"), ([one], "is missing"), ([lost], "cannot be used")):
        with pytest.raises(DescriptorsInvalidError, match=reason):
            Types(libraries, {file.name: file for file in files})


async def test_a_fault_of_ours_while_looking_fails_one_backend_and_is_tried_again() -> None:
    """The task boundary of one backend."""
    looks = 0

    async def find() -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise RuntimeError("a mistake")
        return True

    states: list[str] = []
    discovery = Discovery("shop", find, str)
    async with discovery.running(lambda: states.append(discovery.condition.state)):
        await until(lambda: discovery.condition.state == "ready")
    assert states == ["failed", "ready"]
    assert discovery.condition.state == "starting"


async def test_one_method_is_one_tool_with_the_name_of_its_table() -> None:
    """Promise of the issue: endpoint and method."""
    async with grpc_peer() as peer:
        backend = made("lookup", "grpc", grpc=peer.address, method=f"{ORDERS}/GetOrder", description="Finds it.")
        async with found(backend):
            (tool,) = backend.tools
            assert (tool["name"], tool["description"]) == ("lookup", "Finds it.")
            assert tool["annotations"] == {"readOnlyHint": True}
            got = await result(backend, "lookup", {"id": "77"})
            assert got["structuredContent"] == {"id": "77", "note": "order 77", "total": 0.0}
            assert json.loads(text_of(got)) == got["structuredContent"]


async def test_globs_choose_among_methods() -> None:
    """Promise of the settings: `include` and `exclude` over package.Service/Method."""
    async with grpc_peer() as peer:
        chosen = {"include": ["shop.v1.*/Get*", "shop.v2.Bills/*"], "exclude": ["*/Hang", "*/GetOrder"]}
        backend = made("shop", "grpc", grpc=peer.address, **chosen)
        async with found(backend):
            assert {tool["name"] for tool in backend.tools} == {"Bills_GetBill"}
        backend = made("shop", "grpc", grpc=peer.address, service=ORDERS, include=["*/Get*", "*/Echo"])
        async with found(backend):
            assert {tool["name"] for tool in backend.tools} == {"GetOrder", "Echo"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"service": "shop.v1.Order"}, "no service shop.v1.Order (it has shop.v1.Orders"),
        ({"service": ORDERS, "method": "GetOrdr"}, "no method GetOrdr (it has GetOrder"),
        ({"include": ["nothing*"]}, "none of its"),
    ],
)
async def test_what_the_server_does_not_have_is_told_with_what_is_near(settings: dict[str, Any], reason: str) -> None:
    """Promise of the brief: a failed backend says why."""
    async with grpc_peer() as peer:
        backend = made("shop", "grpc", grpc=peer.address, **settings)
        async with found(backend, "failed"):
            assert reason in backend.condition.reason


async def test_every_kind_of_field_goes_there_and_back_and_fits_the_schemas() -> None:
    """Promise of the issue: protobuf messages are JSON by the rules of ProtoJSON."""
    async with grpc_peer() as peer:
        backend = made("echo", "grpc", grpc=peer.address, method=f"{ORDERS}/Echo")
        async with found(backend):
            (tool,) = backend.tools
            assert "required" not in tool["inputSchema"]
            takes, gives = map(jsonschema_rs.validator_for, (tool["inputSchema"], tool["outputSchema"]))
            assert takes.is_valid(EVERYTHING)
            assert takes.is_valid({**EVERYTHING, "bigNumber": 5, "maybe": None})
            assert not takes.is_valid({"colour": "RED"})
            assert not takes.is_valid({"color": "BLUE"})
            assert not takes.is_valid({"small": -1})
            assert not takes.is_valid({"shelves": {"a": {}}})
            got = (await result(backend, "echo", EVERYTHING))["structuredContent"]
            assert got == EVERYTHING
            assert gives.is_valid(got)
            empty = (await result(backend, "echo", {}))["structuredContent"]
            assert gives.is_valid(empty)
            assert (empty["small"], empty["words"]) == (0, [])
            odd = (await result(backend, "echo", {"ratio": "NaN", "color": 77}))["structuredContent"]
            assert gives.is_valid(odd)
            assert odd["color"] == 77
            assert "shop.v1.Node" in tool["inputSchema"]["$defs"]
            assert not takes.is_valid({"blob": "%%"})
            assert "Only one of byCard, byPoints." in tool["inputSchema"]["properties"]["byCard"]["description"]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ({"byCard": "x", "byPoints": 1}, "payment"),
        ({"nothing": 1}, "nothing"),
        ({"when": "tomorrow"}, "when"),
        ({"whatever": {"@type": "type.googleapis.com/no.Such"}}, "no.Such"),
        ({"huge": -1}, "huge"),
        ({"item": 3}, "item"),
    ],
)
async def test_arguments_that_make_no_message_are_refused_before_anything_is_sent(
    arguments: dict[str, Any], what: str
) -> None:
    """Promise of the bridge: a refusal says what is wrong."""
    async with grpc_peer() as peer:
        backend = made("echo", "grpc", grpc=peer.address, method=f"{ORDERS}/Echo")
        async with found(backend):
            with pytest.raises(ArgumentsRefused, match=what):
                await result(backend, "echo", arguments)


async def test_types_come_from_a_file_where_the_server_does_not_tell_them(tmp_path: Path) -> None:
    """Promise of the settings: `descriptor`, with the comments as descriptions."""
    (tmp_path / "shop.pb").write_bytes(descriptor_set())
    async with grpc_peer(reflects="") as peer:
        silent = made("shop", "grpc", grpc=peer.address)
        async with found(silent, "failed"):
            assert "no server reflection" in silent.condition.reason
            assert "descriptor" in silent.condition.reason
        backend = made("shop", "grpc", tmp_path, grpc=peer.address, descriptor="shop.pb", service=ORDERS)
        async with found(backend):
            tool = next(tool for tool in backend.tools if tool["name"] == "GetOrder")
            assert tool["description"] == "Looks up one order."
            assert tool["inputSchema"]["properties"]["id"]["description"] == "The number of the order."
            assert (await result(backend, "GetOrder", {"id": 1}))["structuredContent"]["note"] == "order 1"
    for data, reason in (
        (None, "bad.pb cannot be read: No such file"),
        (b"\xffnot a descriptor", "bad.pb cannot be used: no descriptors are in it"),
        (b"", "it has no methods"),
    ):
        if data is not None:
            (tmp_path / "bad.pb").write_bytes(data)
        broken = made("shop", "grpc", tmp_path, grpc="localhost:1", descriptor="bad.pb")
        async with found(broken, "failed"):
            assert reason in broken.condition.reason


async def test_a_field_that_is_marked_as_required_is_required() -> None:
    """`google.api.field_behavior`, which proto3 has in place of `required`."""
    async with grpc_peer() as peer:
        backend = made("fail", "grpc", grpc=peer.address, method=f"{ORDERS}/Fail")
        async with found(backend):
            assert backend.tools[0]["inputSchema"]["required"] == ["code"]


async def test_types_that_are_no_objects_stand_as_value() -> None:
    """Arguments and results of tools are objects (spec, tools)."""
    async with grpc_peer() as peer:
        backend = made("shop", "grpc", grpc=peer.address, service=ORDERS)
        async with found(backend):
            assert (await result(backend, "Ping", {}))["structuredContent"] == {"value": "pong"}
            assert (await result(backend, "Say", {"value": "hello"}))["structuredContent"] == {}
            assert peer.metadata == [{"said": "hello"}]


async def test_messages_of_a_stream_are_progress_and_then_the_result() -> None:
    """Promise of the issue: streams of the server; the result holds so many messages."""
    async with grpc_peer() as peer:
        backend = made("watch", "grpc", grpc=peer.address, method=f"{ORDERS}/Watch", max_messages=5)
        async with found(backend):
            heard: list[dict[str, Any]] = []
            got = await result(backend, "watch", {"id": 3}, heard=heard)
            assert [one["id"] for one in got["structuredContent"]["messages"]] == ["0", "1", "2"]
            assert [one["progress"] for one in heard] == [1, 2, 3]
            assert '"id":"2"' in heard[2]["message"]
            assert jsonschema_rs.is_valid(backend.tools[0]["outputSchema"], got["structuredContent"])
            cut = (await result(backend, "watch", {"id": 100_000}))["structuredContent"]
            assert (len(cut["messages"]), cut["truncated"]) == (5, True)
            with anyio.fail_after(60):
                await peer.cancelled.wait()


async def test_streams_to_the_server_are_lists() -> None:
    """Promise of the brief: client streaming takes `messages`."""
    async with grpc_peer() as peer:
        backend = made("shop", "grpc", grpc=peer.address, service=ORDERS)
        async with found(backend):
            items = {"messages": [{"sku": "ab", "count": 1}, {"sku": "cd", "count": 2}]}
            assert (await result(backend, "Sum", items))["structuredContent"]["count"] == 3
            mirrored = (await result(backend, "Mirror", items))["structuredContent"]["messages"]
            assert [one["sku"] for one in mirrored] == ["ba", "dc"]
            assert (await result(backend, "Sum", {"messages": []}))["structuredContent"]["count"] == 0


async def test_metadata_and_the_deadline_go_with_the_call() -> None:
    """Promise of the issue: deadlines, metadata."""
    async with grpc_peer() as peer:
        metadata = {"Authorization": f"Bearer {SECRET}", "trace-bin": base64.b64encode(b"\x00\x01").decode()}
        backend = made("get", "grpc", grpc=peer.address, method=f"{ORDERS}/GetOrder", metadata=metadata, timeout=55)
        async with found(backend):
            await result(backend, "get", {"id": 1})
            await result(backend, "get", {"id": 1}, timeouts=Timeouts(35, 90))
            await result(backend, "get", {"id": 1}, deadline=anyio.current_time() + 15)
            assert peer.metadata[0]["authorization"] == f"Bearer {SECRET}"
            assert peer.metadata[0]["trace-bin"] == b"\x00\x01"
            for told, meant in zip(peer.deadlines, (55, 35, 15), strict=True):
                assert meant - 15 < told < meant + 0.9


async def test_a_call_over_its_deadline_is_told_as_such_and_ends_at_the_server() -> None:
    """Promise of the issue: deadlines reach the server."""
    async with grpc_peer() as peer:
        backend = made("hang", "grpc", grpc=peer.address, method=f"{ORDERS}/Hang")
        async with found(backend):
            seconds = 0.1
            while not peer.hanging.is_set():  # a busy machine may need longer to come to the server
                seconds *= 2
                with pytest.raises(UpstreamTimeout) as caught:
                    await result(backend, "hang", {}, timeouts=Timeouts(seconds, seconds))
                assert caught.value.upstream == "shop"
            with anyio.fail_after(60):
                await peer.cancelled.wait()


async def test_cancelling_a_call_cancels_it_at_the_server() -> None:
    """Promise of `Backend.run`: cancelled, what it began ends too."""
    async with grpc_peer() as peer:
        backend = made("hang", "grpc", grpc=peer.address, method=f"{ORDERS}/Hang")
        async with found(backend):
            async with anyio.create_task_group() as group:
                group.start_soon(backend.run, call_of("hang", {}))
                with anyio.fail_after(60):
                    await peer.hanging.wait()
                group.cancel_scope.cancel()
            with anyio.fail_after(60):
                await peer.cancelled.wait()


async def test_a_call_under_way_when_the_backend_ends_is_told_so() -> None:
    """Promise of `Backend.running`: leaving ends all that it holds; nobody else is cancelled by that."""
    async with grpc_peer() as peer:
        backend = made("hang", "grpc", grpc=peer.address, method=f"{ORDERS}/Hang")
        outcomes: list[BaseException] = []

        async def run() -> None:
            try:
                await backend.run(call_of("hang", {}))
            except UpstreamGone as error:
                outcomes.append(error)

        async with anyio.create_task_group() as group, found(backend):
            group.start_soon(run)
            with anyio.fail_after(60):
                await peer.hanging.wait()
        assert len(outcomes) == 1
        with pytest.raises(UpstreamUnavailable):
            await backend.run(call_of("hang", {}))
        assert not (await backend.check()).ok


def _bad_request() -> bytes:
    """A `google.rpc.Status` with a `BadRequest`, as bytes: two fields that have a length each."""

    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    violation = field(1, b"order.id") + field(2, b"must be positive")
    detail = any_pb2.Any(type_url="type.googleapis.com/google.rpc.BadRequest", value=field(1, violation))
    return b"\x08\x03" + field(3, detail.SerializeToString())


@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.value[0]])
async def test_each_status_is_an_error_that_teaches(code: grpc.StatusCode, shared: Peer) -> None:
    """Promise of the issue: statuses become errors; what a model can mend is a result that it reads."""
    backend = made("fail", "grpc", grpc=shared.address, method=f"{ORDERS}/Fail")
    async with found(backend):
        arguments = {"code": code.value[0], "text": f"no, not with {SECRET}"}
        if code is grpc.StatusCode.UNAVAILABLE:
            with pytest.raises(UpstreamGone) as gone:
                await result(backend, "fail", arguments)
            assert SECRET not in str(gone.value)
        elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
            with pytest.raises(UpstreamTimeout):
                await result(backend, "fail", arguments)
        else:
            got = await result(backend, "fail", arguments)
            assert got["isError"]
            assert f"{code.name}: no, not with [redacted]." in text_of(got)
            assert len(text_of(got)) > len(code.name) + 60


async def test_fields_that_are_wrong_are_named(shared: Peer) -> None:
    """`google.rpc.BadRequest` in the details of a status."""
    backend = made("fail", "grpc", grpc=shared.address, method=f"{ORDERS}/Fail")
    async with found(backend):
        for details, said in ((_bad_request(), "order.id: must be positive."), (b"\xff\xff", "INVALID_ARGUMENT: no")):
            arguments = {"code": 3, "text": "no", "details": base64.b64encode(details).decode()}
            assert said in text_of(await result(backend, "fail", arguments))


async def test_a_message_over_the_limit_is_told_with_the_setting(shared: Peer) -> None:
    """Promise of the settings: `max_message`."""
    backend = made("shop", "grpc", grpc=shared.address, service=ORDERS, max_message="64 KiB")
    async with found(backend):
        got = await result(backend, "GetOrder", {"id": 10_000 * 100_000})
        assert got["isError"]
        assert "64 KiB" in text_of(got)
        assert "max_message" in text_of(got)
        with pytest.raises(ArgumentsRefused, match=r"64 KiB.*max_message"):
            await result(backend, "Echo", {"title": "x" * 100_000})


async def test_health_is_what_the_health_service_says(shared: Peer) -> None:
    """Promise of the issue: health by grpc.health."""
    backend = made("shop", "grpc", grpc=shared.address, service=ORDERS)
    async with found(backend):
        health = await backend.check()
        assert health.ok
        assert "SERVING" in health.detail
        await shared.health.set(ORDERS, health_pb2.HealthCheckResponse.NOT_SERVING)
        sick = await backend.check()
        assert (sick.ok, "NOT_SERVING" in sick.detail) == (False, True)


@pytest.mark.parametrize("version", ["v1", "v1alpha", ""])
async def test_health_without_a_health_service_is_whether_it_answers(version: str, tmp_path: Path) -> None:
    """Promise of the issue: health by reflection."""
    (tmp_path / "shop.pb").write_bytes(descriptor_set())
    async with grpc_peer(reflects=version, has_health=False) as peer:
        file = {} if version else {"descriptor": "shop.pb"}
        backend = made("shop", "grpc", tmp_path, grpc=peer.address, **file)
        async with found(backend):
            health = await backend.check()
            assert health.ok
            assert "no health service" in health.detail
    nobody = made("shop", "grpc", tmp_path, grpc=peer.address, descriptor="shop.pb")
    async with found(nobody):
        health = await nobody.check()
        assert not health.ok
        assert "UNAVAILABLE" in health.detail


async def test_a_server_that_comes_late_or_again_is_found() -> None:
    """Promise of `Backend`: tried again by itself; calls make the connection anew."""
    # Bound here as well, so that nobody else gets it meanwhile; who does not listen refuses connections.
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(("127.0.0.1", 0))
        await _comes_late_and_again(f"127.0.0.1:{kept.getsockname()[1]}")


async def _comes_late_and_again(address: str) -> None:
    backend = made("get", "grpc", grpc=address, method=f"{ORDERS}/GetOrder")
    async with found(backend, "failed"):
        assert "without TLS" in backend.condition.reason
        with pytest.raises(UpstreamUnavailable, match="UNAVAILABLE"):
            await result(backend, "get", {"id": 1})
        async with grpc_peer(address=address):
            await until(lambda: backend.condition.state == "ready")
            assert (await result(backend, "get", {"id": 1}))["structuredContent"]["id"] == "1"
        with pytest.raises(UpstreamUnavailable):
            await result(backend, "get", {"id": 1})
        assert [tool["name"] for tool in backend.tools] == ["get"]
        async with grpc_peer(address=address):

            async def works() -> bool:
                try:
                    return not (await result(backend, "get", {"id": 1})).get("isError")
                except UpstreamUnavailable:
                    return False

            with anyio.fail_after(60):
                while not await works():
                    await anyio.sleep(0.05)


async def test_tls_is_used_where_it_is_set_up(tmp_path: Path) -> None:
    """Promise of the issue: TLS, with a certificate of ours where the server wants one."""
    authority, other = trustme.CA(), trustme.CA()
    server, ours = authority.issue_cert("localhost"), authority.issue_cert("us@example.org")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    other.cert_pem.write_to_path(tmp_path / "other.pem")
    ours.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    ours.private_key_pem.write_to_path(tmp_path / "key.pem")
    credentials = grpc.ssl_server_credentials(
        [(server.private_key_pem.bytes(), server.cert_chain_pems[0].bytes())],
        root_certificates=authority.cert_pem.bytes(),
        require_client_auth=True,
    )
    async with grpc_peer(address="localhost:0", credentials=credentials) as peer:
        own = {"cert": "cert.pem", "key": "key.pem"}
        backend = made("shop", "grpc", tmp_path, grpc=peer.address, tls={"ca": "ca.pem", **own}, service=ORDERS)
        async with found(backend):
            assert (await result(backend, "Ping", {}))["structuredContent"] == {"value": "pong"}
        for tls, reason in [
            ({"ca": "other.pem", **own}, "with TLS"),
            ({"ca": "ca.pem"}, "with TLS"),
            (False, "without TLS"),
            ({"ca": "missing.pem"}, "tls.ca: missing.pem cannot be read"),
            ({"ca": "."}, "tls.ca"),
        ]:
            wrong = made("shop", "grpc", tmp_path, grpc=peer.address, tls=tls)
            async with found(wrong, "failed"):
                assert reason in wrong.condition.reason


async def test_a_unix_socket_is_an_address_as_well(tmp_path: Path) -> None:
    """Promise of the settings: `unix:/path`."""
    async with grpc_peer(address=f"unix:{tmp_path}/g.sock") as peer:
        backend = made("shop", "grpc", grpc=peer.address, service=ORDERS)
        async with found(backend):
            assert (await result(backend, "Ping", {}))["structuredContent"] == {"value": "pong"}


async def test_the_command_refresh_asks_anew(shared: Peer) -> None:
    """Promise of the brief: management commands."""
    backend = made("get", "grpc", grpc=shared.address, method=f"{ORDERS}/GetOrder")
    async with found(backend) as changes:
        assert await backend.command("refresh", {}) == {"state": "ready", "reason": "", "tools": ["get"]}
        assert changes() == 1
        with pytest.raises(UnknownName, match="refresh"):
            await backend.command("refrsh", {})


async def test_a_refresh_that_fails_is_told_as_a_failure(tmp_path: Path) -> None:
    """Promise of `Backend`: who commands it learns that from an error, over the API and on the command line."""
    address = f"unix:{tmp_path}/g.sock"
    async with grpc_peer(address=address) as peer:
        backend = made("get", "grpc", grpc=peer.address, method=f"{ORDERS}/GetOrder")
        async with found(backend):
            await peer.server.stop(None)
            with pytest.raises(UpstreamUnavailable, match="UNAVAILABLE"):
                await backend.command("refresh", {})
            assert [tool["name"] for tool in backend.tools] == ["get"], "they stay as they are"


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"grpc": "http://localhost:1"}, "switches TLS on"),
        ({"grpc": "localhost"}, "host:port"),
        ({"grpc": "user:pw@host:1"}, "host:port"),
        ({"grpc": "unix:80"}, "host:port"),  # a socket in the working directory, were it passed on
        ({"grpc": "h:1", "method": "Get"}, "needs its `service`"),
        ({"grpc": "h:1", "service": "a.B", "method": "a.C/Get"}, "another service"),
        ({"grpc": "h:1", "service": "a/B"}, "with its package"),
        ({"grpc": "h:1", "method": "a.B/Get", "exclude": ["x"]}, "take one out"),
        ({"grpc": "h:1", "input_schema": {}}, "need `method`"),
        ({"grpc": "h:1", "metadata": {"grpc-x": "1"}}, "no `grpc-`"),
        ({"grpc": "h:1", "metadata": {"a-bin": "%"}}, "base64"),
        ({"grpc": "h:1", "metadata": {"a": "é"}}, "ASCII"),
        ({"grpc": "h:1", "tls": {"cert": "c"}}, "go together"),
        ({"grpc": "h:1", "timeout": 3, "call_timeout": 4}, "the same"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(settings: dict[str, Any], what: str) -> None:
    """Promise of the issue: bad specs give errors with file and key."""
    with pytest.raises(ValidationError, match=what):
        GrpcSettings.model_validate(settings)


@pytest.mark.parametrize(
    ("address", "tls", "is_encrypted"),
    [
        ("localhost:1", None, False),
        ("127.9.9.9:1", None, False),
        ("[::1]:1", None, False),
        ("unix:/run/x", None, False),
        ("localhost:1", True, True),
        ("example.com:443", None, True),
        ("dns:///example.com:443", None, True),
        ("10.0.0.1:1", None, True),
        ("example.com:443", False, False),
        ("localhost.example.com:1", None, True),
    ],
)
def test_only_this_machine_is_spoken_to_without_tls_unless_that_is_said(
    address: str, tls: bool | None, is_encrypted: bool
) -> None:
    """Promise of the settings: metadata with secrets does not leave in the clear by oversight."""
    assert GrpcSettings.model_validate({"grpc": address, "tls": tls}).encrypted is is_encrypted


def test_nothing_of_grpc_is_imported_before_a_backend_runs_and_the_extra_is_named_where_it_is_missing() -> None:
    """Promise of the house: start-up time is a feature."""
    program = """
import sys
from mcpbridge.tools.backend import BackendContext
from mcpbridge.tools.factory import make, model_of
make("x", model_of("grpc").model_validate({"grpc": "localhost:1"}), BackendContext(None))
assert not {"grpc", "google.protobuf"} & set(sys.modules)
sys.modules["grpc"] = None
from mcpbridge.tools.serving import Discovery
from mcpbridge.tools.grpc.message_types import load
try:
    load()
except Exception as error:
    print(type(error).__name__, error)
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.startswith(ConfigError.__name__)
    assert "pip install 'mcpbridge[grpc]'" in told


_ITEM = st.fixed_dictionaries({}, optional={"sku": st.text(), "count": st.integers(-(2**31), 2**31 - 1)})
_NODE = st.recursive(
    st.fixed_dictionaries({}, optional={"label": st.text()}),
    lambda inner: st.fixed_dictionaries({"children": st.lists(inner, max_size=3)}, optional={"label": st.text()}),
    max_leaves=5,
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_LONG = st.integers(-(2**63), 2**63 - 1)
_ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "title": st.text(),
        "bigNumber": _LONG | _LONG.map(str),
        "small": st.integers(0, 2**32 - 1),
        "huge": st.integers(0, 2**64 - 1).map(str),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "blob": st.binary().map(lambda data: base64.b64encode(data).decode()),
        "color": st.sampled_from(["COLOR_UNSPECIFIED", "RED", "GREEN"]),
        "items": st.lists(_ITEM, max_size=3),
        "when": st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
        "howLong": st.integers(-(10**9), 10**9).map(lambda seconds: f"{seconds}s"),
        "extra": st.dictionaries(st.text(), _JSON, max_size=3),
        "free": _JSON,
        "whatever": _ITEM.map(lambda item: {"@type": "type.googleapis.com/shop.v1.Item", **item}),
        "maybe": st.none() | _LONG,
        "stock": st.dictionaries(st.text(), st.integers(0, 100), max_size=3),
        "shelves": st.dictionaries(st.integers(-5, 5).map(str), _ITEM, max_size=3),
        "tree": _NODE,
        "byCard": st.text(),
    },
)


@given(arguments=_ARGUMENTS)
@settings(max_examples=150, deadline=None)
def test_what_the_schema_allows_becomes_a_message_and_that_the_same_json_again(arguments: dict[str, Any]) -> None:
    """The schemas and ProtoJSON agree, in both directions."""
    shape = _echo()
    assert jsonschema_rs.is_valid(shape.definition["inputSchema"], arguments)
    (message,) = shape.messages(arguments)
    value = shape.value(message)
    jsonschema_rs.validate(shape.definition["outputSchema"], value)
    assert shape.messages(value) == [message]


@cache
def _echo() -> GrpcMethod:
    libraries = load()
    types = Types(libraries, {file.name: file for file in FileDescriptorSet.FromString(descriptor_set()).file})
    settings = GrpcSettings.model_validate({"grpc": "localhost:1", "method": f"{ORDERS}/Echo"})
    return methods_of(libraries, types, "echo", settings)["echo"]
