"""How many tokens a text may be for a model, told from its bytes. An estimate, and shown as one wherever it shows.

Models count differently, and counting exactly takes the tokenizer of each and milliseconds a result. For JSON and
English prose the common tokenizers stay within about a quarter of this.
"""

__all__ = ["BYTES_PER_TOKEN", "estimated_tokens"]

BYTES_PER_TOKEN = 4
"""UTF-8 bytes of one token, on average."""


def estimated_tokens(size: int) -> int:
    """Tokens of so many bytes, rounded up."""
    return -(-size // BYTES_PER_TOKEN)
