"""A server whose tool `photograph` answers with an image: a PNG that a browser can draw, 57 KB of it."""

import base64
import struct
import zlib
from typing import Any

from plain import Result, Server, tool

WIDTH, HEIGHT = 160, 120


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _png() -> bytes:
    rows = b"".join(b"\0" + bytes(x * y % 256 for x in range(3 * WIDTH)) for y in range(HEIGHT))
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    image = zlib.compress(rows, level=0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", image) + _chunk(b"IEND", b"")


class Camera(Server):
    """One tool: `photograph`."""

    def __init__(self) -> None:
        super().__init__()
        self.tools = [tool("photograph")]

    def tool_photograph(self, _id: object, _arguments: dict[str, Any]) -> Result:
        data = base64.b64encode(_png()).decode()
        image = {"type": "image", "mimeType": "image/png", "data": data}
        return {"content": [{"type": "text", "text": "the harbour"}, image]}


if __name__ == "__main__":
    Camera().run()
