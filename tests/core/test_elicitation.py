"""What is told of clients to modern servers."""

import json

from mcpbridge.core.elicitation import ClientCapabilities, encoded_capabilities


def test_extensions_of_any_length_are_declared_and_long_ones_not_remembered() -> None:
    """They are the client's own: as many clients could fill the memory with them as there are requests."""
    short, long = b'{"a/b":{}}', b'{"a/b":{"x":"%b"}}' % (b"x" * 100_000)
    profile = ClientCapabilities(form=True)
    for extensions in (short, long):
        declared = json.loads(encoded_capabilities(profile, extensions))
        assert declared == {"elicitation": {"form": {}}, "extensions": json.loads(extensions)}
    assert encoded_capabilities(profile, short) is encoded_capabilities(profile, short)
    assert encoded_capabilities(profile, long) is not encoded_capabilities(profile, long)
