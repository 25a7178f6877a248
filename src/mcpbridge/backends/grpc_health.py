"""Whether a gRPC server is well: what its health service says (grpc.health.v1), else whether it answers at all."""

from typing import Any

from mcpbridge.backends.grpc_channel import Server
from mcpbridge.backends.grpc_reflection import NoReflectionError, Reflection
from mcpbridge.backends.grpc_settings import GrpcSettings
from mcpbridge.backends.grpc_statuses import why

__all__ = ["health_of", "why_not"]

_SERVING = 1
_STATUSES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


async def health_of(server: Server, settings: GrpcSettings) -> tuple[bool, str]:
    """Whether it is well, and what was found."""
    method = server.known.health
    ask = server.channel.unary_unary(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )
    for service in dict.fromkeys([settings.service or "", ""]):
        try:
            answer = await ask(method.request(service=service), metadata=server.metadata)
        except server.libraries.aio.AioRpcError as error:
            if error.code().name == "UNIMPLEMENTED":
                return await _answers(server, settings)
            if error.code().name != "NOT_FOUND" or not service:
                return False, why_not(error, settings)
        else:
            status = _STATUSES.get(answer.status, str(answer.status))
            return answer.status == _SERVING, f"{status}, says its health service"
    return False, "its health service knows nothing of it"


async def _answers(server: Server, settings: GrpcSettings) -> tuple[bool, str]:
    """It has no health service: it is well if it answers at all."""
    if settings.descriptor is not None:
        return True, "it answers; it has no health service"
    try:
        services = await Reflection(server).services()
    except NoReflectionError:
        return True, "it answers; it has no health service and no reflection"
    except server.libraries.aio.AioRpcError as error:
        return False, why_not(error, settings)
    return True, f"it tells {len(services)} services; it has no health service"


def why_not(error: Any, settings: GrpcSettings) -> str:
    """Why the server cannot be asked, for people; secrets in what it says are not masked yet."""
    said = why(error, lambda text: text)
    if error.code().name != "UNAVAILABLE":
        return said
    return f"{said} ({'with' if settings.encrypted else 'without'} TLS; `tls` says which)"
