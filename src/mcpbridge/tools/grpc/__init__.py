"""Methods of a gRPC server as tools: `[tools.NAME] grpc = "host:port"`.

Start with `backend.py`. `reflection.py` asks a server for its types, `schema.py` makes JSON Schema of them.
"""
