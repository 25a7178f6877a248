"""Reading recorded exchanges; the form is told in `features/protocol/recorded/frames.txt`."""


class Exchange:
    """One exchange of the recording."""

    def __init__(self, block: str) -> None:
        self.request = self.result = self.question = self.reply = ("", "")
        for line in block.splitlines():
            kind, _, rest = line.partition(" ")
            method, _, body = rest.partition(" ")
            match kind:
                case ">":
                    self.request = (method, body)
                case "?":
                    self.question = (method, body)
                case "!":
                    self.reply = ("", rest)
                case "<":
                    self.result = ("", rest)


def exchanges(frames: str) -> list[Exchange]:
    """All exchanges of a recording."""
    blocks = "\n".join(line for line in frames.splitlines() if not line.startswith("#")).split("\n\n")
    return [Exchange(block.strip()) for block in blocks if block.strip()]
