"""A small gRPC server with reflection for the examples: one method, put together without generated code.

`python grpc_service.py [PORT]`; needs grpcio and grpcio-reflection.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha import reflection

SERVICE = "shop.v1.Orders"

file = FileDescriptorProto(name="shop.proto", package="shop.v1", syntax="proto3")
for message, fields in {
    "Which": {"id": Field.TYPE_INT32},
    "Order": {"id": Field.TYPE_INT32, "item": Field.TYPE_STRING},
}.items():
    added = file.message_type.add(name=message)
    for number, (name, kind) in enumerate(fields.items(), 1):
        added.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
file.service.add(name="Orders").method.add(name="GetOrder", input_type="shop.v1.Which", output_type="shop.v1.Order")
Default().AddSerializedFile(file.SerializeToString())
Which, Order = (GetMessageClass(Default().FindMessageTypeByName(f"shop.v1.{name}")) for name in ("Which", "Order"))


def get_order(which: Any, context: grpc.ServicerContext) -> Any:
    if which.id > 1000:
        context.abort(grpc.StatusCode.NOT_FOUND, f"there is no order {which.id}")
    return Order(id=which.id, item="rope")


if __name__ == "__main__":
    server = grpc.server(ThreadPoolExecutor(4))
    method = grpc.unary_unary_rpc_method_handler(get_order, Which.FromString, Order.SerializeToString)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"GetOrder": method})])
    reflection.enable_server_reflection([SERVICE, reflection.SERVICE_NAME], server)
    port = server.add_insecure_port(f"127.0.0.1:{sys.argv[1] if sys.argv[1:] else 50765}")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    server.wait_for_termination()
