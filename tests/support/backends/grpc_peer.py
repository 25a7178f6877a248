"""A real gRPC server for the tests: its types are put together here, so no generated code is needed."""

import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import grpc
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # as the backend does, which may come later

KNOWN = [descriptor_pb2, any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2]
Types = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "int32": Types.TYPE_INT32,
    "uint32": Types.TYPE_UINT32,
    "int64": Types.TYPE_INT64,
    "uint64": Types.TYPE_UINT64,
    "double": Types.TYPE_DOUBLE,
    "float": Types.TYPE_FLOAT,
    "bool": Types.TYPE_BOOL,
    "string": Types.TYPE_STRING,
    "bytes": Types.TYPE_BYTES,
}

MESSAGES: dict[str, list[tuple[str, str]]] = {
    "Item": [("sku", "string"), ("count", "int32")],
    "Node": [("label", "string"), ("children", "*Node")],
    "Everything": [
        ("title", "string"),
        ("big_number", "int64"),
        ("small", "uint32"),
        ("huge", "uint64"),
        ("ratio", "double"),
        ("is_new", "bool"),
        ("blob", "bytes"),
        ("color", "!Color"),
        ("item", "Item"),
        ("items", "*Item"),
        ("words", "*string"),
        ("when", ".google.protobuf.Timestamp"),
        ("how_long", ".google.protobuf.Duration"),
        ("extra", ".google.protobuf.Struct"),
        ("free", ".google.protobuf.Value"),
        ("whatever", ".google.protobuf.Any"),
        ("mask", ".google.protobuf.FieldMask"),
        ("maybe", ".google.protobuf.Int64Value"),
        ("stock", "#string:int32"),
        ("shelves", "#int32:Item"),
        ("tree", "Node"),
        ("by_card", "?string"),
        ("by_points", "?int32"),
    ],
    "Get": [("id", "int64")],
    "Order": [("id", "int64"), ("note", "string"), ("total", "double")],
    "Problem": [("code", "int32"), ("text", "string"), ("details", "bytes")],
}
METHODS = [
    ("Echo", "Everything", "Everything", "unary_unary"),
    ("GetOrder", "Get", "Order", "unary_unary"),
    ("Ping", ".google.protobuf.Empty", ".google.protobuf.StringValue", "unary_unary"),
    ("Say", ".google.protobuf.StringValue", ".google.protobuf.Empty", "unary_unary"),
    ("Hang", "Get", "Order", "unary_unary"),
    ("Fail", "Problem", "Order", "unary_unary"),
    ("Watch", "Get", "Order", "unary_stream"),
    ("Sum", "Item", "Item", "stream_unary"),
    ("Mirror", "Item", "Item", "stream_stream"),
]


def files() -> list[descriptor_pb2.FileDescriptorProto]:
    """The files of the server's types, with comments."""
    types = descriptor_pb2.FileDescriptorProto(name="shop/types.proto", package="shop.v1", syntax="proto3")
    types.dependency.extend([*(known.DESCRIPTOR.name for known in KNOWN), "google/api/field_behavior.proto"])
    color = types.enum_type.add(name="Color")
    for number, name in enumerate(("COLOR_UNSPECIFIED", "RED", "GREEN")):
        color.value.add(name=name, number=number)
    for name, fields in MESSAGES.items():
        message = types.message_type.add(name=name)
        for number, (one, kind) in enumerate(fields, 1):
            _add_field(message, one, kind, number)
    problem = types.message_type[list(MESSAGES).index("Problem")]
    problem.field[0].options.MergeFromString(b"\xe2\x41\x01\x02")  # [(google.api.field_behavior) = REQUIRED]
    comment = types.source_code_info.location
    comment.add(path=[4, list(MESSAGES).index("Get"), 2, 0], leading_comments=" The number of\n the order.\n")
    services = descriptor_pb2.FileDescriptorProto(name="shop/orders.proto", package="shop.v1", syntax="proto3")
    services.dependency.append("shop/types.proto")
    service = services.service.add(name="Orders")
    for name, takes, gives, kind in METHODS:
        service.method.add(
            name=name,
            input_type=_full(takes),
            output_type=_full(gives),
            client_streaming=kind.startswith("stream"),
            server_streaming=kind.endswith("stream"),
        )
    service.method[1].options.idempotency_level = descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS
    services.source_code_info.location.add(path=[6, 0, 2, 1], leading_comments=" Looks up one order.\n")
    services.dependency.extend(known.DESCRIPTOR.name for known in KNOWN)
    second = descriptor_pb2.FileDescriptorProto(name="shop/two.proto", package="shop.v2", syntax="proto3")
    second.dependency.append("shop/types.proto")
    second.service.add(name="Orders").method.add(name="GetOrder", input_type=_full("Get"), output_type=_full("Order"))
    second.service.add(name="Bills").method.add(name="GetBill", input_type=_full("Get"), output_type=_full("Order"))
    return [_field_behavior(), types, services, second]


def _field_behavior() -> descriptor_pb2.FileDescriptorProto:
    """`google/api/field_behavior.proto`, as far as it is used here."""
    file = descriptor_pb2.FileDescriptorProto(
        name="google/api/field_behavior.proto", package="google.api", syntax="proto3"
    )
    file.dependency.append("google/protobuf/descriptor.proto")
    behavior = file.enum_type.add(name="FieldBehavior")
    for number, name in enumerate(("FIELD_BEHAVIOR_UNSPECIFIED", "OPTIONAL", "REQUIRED")):
        behavior.value.add(name=name, number=number)
    file.extension.add(
        name="field_behavior",
        number=1052,
        label=Types.LABEL_REPEATED,
        type=Types.TYPE_ENUM,
        type_name=".google.api.FieldBehavior",
        extendee=".google.protobuf.FieldOptions",
    )
    return file


def _full(name: str) -> str:
    return name if name.startswith(".") else f".shop.v1.{name}"


def _add_field(message: Any, name: str, kind: str, number: int) -> None:
    one = message.field.add(name=name, number=number, label=Types.LABEL_OPTIONAL)
    if kind[0] == "#":
        key, value = kind[1:].split(":")
        entry = message.nested_type.add(name="".join(word.capitalize() for word in name.split("_")) + "Entry")
        entry.options.map_entry = True
        _add_field(entry, "key", key, 1)
        _add_field(entry, "value", value, 2)
        one.label, one.type = Types.LABEL_REPEATED, Types.TYPE_MESSAGE
        one.type_name = f".shop.v1.{message.name}.{entry.name}"
        return
    if kind[0] == "*":
        one.label = Types.LABEL_REPEATED
    if kind[0] == "?":
        if not message.oneof_decl:
            message.oneof_decl.add(name="payment")
        one.oneof_index = 0
    plain = kind.lstrip("*?!")
    if plain in SCALARS:
        one.type = SCALARS[plain]
    else:
        one.type = Types.TYPE_ENUM if kind[0] == "!" else Types.TYPE_MESSAGE
        one.type_name = _full(plain)


def pool() -> DescriptorPool:
    """A pool with the types of the server."""
    made = DescriptorPool()
    for known in KNOWN:
        made.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    for file in files():
        made.AddSerializedFile(file.SerializeToString())
    return made


def descriptor_set() -> bytes:
    """What `protoc --include_imports --include_source_info --descriptor_set_out` writes."""
    made = descriptor_pb2.FileDescriptorSet()
    for known in KNOWN:
        made.file.add().ParseFromString(known.DESCRIPTOR.serialized_pb)
    made.file.extend(files())
    return made.SerializeToString()


@dataclass
class Peer:
    """What the server has seen and can be told."""

    address: str
    server: Any
    health: Any
    metadata: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    deadlines: list[float] = field(default_factory=list[float])
    hanging: anyio.Event = field(default_factory=anyio.Event)
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    sent: int = 0


class Orders:
    """The methods."""

    def __init__(self, peer: Peer, types: DescriptorPool) -> None:
        self.peer = peer
        self.order = GetMessageClass(types.FindMessageTypeByName("shop.v1.Order"))
        self.item = GetMessageClass(types.FindMessageTypeByName("shop.v1.Item"))

    def _note(self, context: Any) -> None:
        self.peer.metadata.append(dict(context.invocation_metadata()))
        self.peer.deadlines.append(context.time_remaining())

    async def echo(self, request: Any, context: Any) -> Any:
        return request

    async def get_order(self, request: Any, context: Any) -> Any:
        self._note(context)
        return self.order(id=request.id, note=f"order {request.id}{'!' * (request.id // 10_000)}", total=0)

    async def ping(self, request: Any, context: Any) -> Any:
        return wrappers_pb2.StringValue(value="pong")

    async def say(self, request: Any, context: Any) -> Any:
        self.peer.metadata.append({"said": request.value})
        return empty_pb2.Empty()

    async def hang(self, request: Any, context: Any) -> Any:
        self.peer.hanging.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.peer.cancelled.set()

    async def fail(self, request: Any, context: Any) -> Any:
        code = next(one for one in grpc.StatusCode if one.value[0] == request.code)
        trailing = (("grpc-status-details-bin", request.details),) if request.details else ()
        await context.abort(code, request.text, trailing)

    async def watch(self, request: Any, context: Any) -> Any:
        try:
            for number in range(request.id):
                self.peer.sent = number + 1
                yield self.order(id=number, note="x" * 100)
        finally:
            if self.peer.sent < request.id:
                self.peer.cancelled.set()

    async def sum(self, requests: Any, context: Any) -> Any:
        count = 0
        async for one in requests:
            count += one.count
        return self.item(sku="sum", count=count)

    async def mirror(self, requests: Any, context: Any) -> Any:
        async for one in requests:
            yield self.item(sku=one.sku[::-1], count=one.count)


def _handlers(peer: Peer, types: DescriptorPool) -> Iterator[Any]:
    orders = Orders(peer, types)
    names = {"GetOrder": "get_order"}
    for service in ("shop.v1.Orders", "shop.v2.Orders", "shop.v2.Bills"):
        methods: dict[str, Any] = {}
        for method in types.FindServiceByName(service).methods:
            kind = next((kind for name, _, _, kind in METHODS if name == method.name), "unary_unary")
            run = (
                orders.get_order
                if method.name == "GetBill"
                else getattr(orders, names.get(method.name, method.name.lower()))
            )
            methods[method.name] = getattr(grpc, f"{kind}_rpc_method_handler")(
                run,
                request_deserializer=GetMessageClass(method.input_type).FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
        yield grpc.method_handlers_generic_handler(service, methods)


class Sparse:
    """Reflection of servers that hand out each file alone, and none of those that come with protobuf."""

    def __init__(self, broken: str) -> None:
        self.files = {file.name: file.SerializeToString() for file in files()}
        if broken == "missing":
            del self.files["shop/types.proto"]
        if broken == "garbage":
            self.files["shop/types.proto"] = b"\xff"

    async def answer(self, requests: Any, context: Any) -> Any:
        async for request in requests:
            told = reflection_pb2.ServerReflectionResponse()
            name = request.file_by_filename
            if request.file_containing_symbol.startswith("shop."):
                name = "shop/two.proto" if ".v2." in request.file_containing_symbol else "shop/orders.proto"
            if request.HasField("list_services"):
                for service in ("shop.v1.Orders", "shop.v2.Orders", "grpc.health.v1.Health"):
                    told.list_services_response.service.add(name=service)
            elif name in self.files:
                told.file_descriptor_response.file_descriptor_proto.append(self.files[name])
            else:
                told.error_response.error_code = 5
            yield told


def _reflecting(run: Any, version: str) -> Any:
    method = grpc.stream_stream_rpc_method_handler(
        run,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    service = f"grpc.reflection.{version}.ServerReflection"
    return grpc.method_handlers_generic_handler(service, {"ServerReflectionInfo": method})


@asynccontextmanager
async def grpc_peer(
    *,
    reflects: str = "v1",
    has_health: bool = True,
    address: str = "127.0.0.1:0",
    credentials: Any = None,
) -> AsyncGenerator[Peer]:
    """A running server. `reflects`: the version of its reflection, or nothing."""
    types = pool()
    server = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    peer = Peer("", server, servicer)
    server.add_generic_rpc_handlers(tuple(_handlers(peer, types)))
    names = ["shop.v1.Orders", "shop.v2.Orders", "shop.v2.Bills", health.SERVICE_NAME]
    if reflects == "v1alpha":
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], server, pool=types)
    elif reflects.startswith("sparse"):
        server.add_generic_rpc_handlers((_reflecting(Sparse(reflects.partition(" ")[2]).answer, "v1"),))
    elif reflects:
        servicing = reflection.aio.ReflectionServicer(names, pool=types).ServerReflectionInfo
        server.add_generic_rpc_handlers((_reflecting(servicing, reflects),))
    if has_health:
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    if credentials is not None:
        port = server.add_secure_port(address, credentials)
    else:
        port = server.add_insecure_port(address)
    peer.address = address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
    await server.start()
    try:
        yield peer
    finally:
        with anyio.CancelScope(shield=True):
            await server.stop(None)
