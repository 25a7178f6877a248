"""A server on the official SDK, over stdio; `make_server` for those that put it on another transport."""

from mcp.server.mcpserver import Context, MCPServer


def make_server() -> MCPServer:
    """A server with tools that answer, report progress, answer at length and ask back."""
    server = MCPServer("sdk")

    @server.tool()
    async def shout(text: str, ctx: Context) -> str:
        """The text in capitals."""
        await ctx.report_progress(1, 2)
        return text.upper()

    @server.tool()
    async def long(size: int) -> str:
        """A text of so many characters."""
        return "x" * size

    return server


if __name__ == "__main__":
    make_server().run("stdio")
