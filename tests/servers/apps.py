"""A server with an MCP App, made with the official SDK: a tool that shows a page, and one for that page alone."""

import sys
from typing import Any

from mcp.server.apps import APP_MIME_TYPE, Apps, ResourceCsp, client_supports_apps
from mcp.server.mcpserver import Context, MCPServer

PAGE = "<!doctype html><script>const app = 'ui://chart/view.html' // stays as it is</script>"
NAME = sys.argv[1]

apps = Apps()


@apps.tool(resource_uri="ui://chart/view.html", description="Show a chart")
def show(ctx: Context[Any]) -> dict[str, Any]:
    """Tell whether the client can show it."""
    return {"server": NAME, "shows": client_supports_apps(ctx)}


@apps.tool(resource_uri="ui://chart/view.html", visibility=["app"], description=f"Data of {NAME}", name=f"data_{NAME}")
def data() -> str:
    """For the page alone."""
    return f"data of {NAME}"


apps.add_html_resource(
    "ui://chart/view.html",
    PAGE,
    csp=ResourceCsp(connect_domains=["https://api.example.com"]),
    domain="chart.example.com",
)
assert APP_MIME_TYPE == "text/html;profile=mcp-app"
server = MCPServer(NAME, extensions=[apps])

if __name__ == "__main__":
    server.run("stdio")
