"""An API with an OpenAPI document as tools, one for each operation: `[tools.NAME] openapi = "..."`.

Start with `backend.py`. Which operations are tools, and their names, is decided in `operations.py`.
"""
