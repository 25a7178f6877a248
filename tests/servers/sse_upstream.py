"""The SDK's server over legacy HTTP+SSE, or with `http` as argument over streamable HTTP; prints its URL first."""

import socket
import sys
import warnings

import uvicorn
from sdk_tools import make_server

if __name__ == "__main__":
    server = make_server()
    is_http = "http" in sys.argv[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDK calls its SSE transport deprecated
        app = server.streamable_http_app() if is_http else server.sse_app()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/{'mcp' if is_http else 'sse'}", flush=True)
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listening])
