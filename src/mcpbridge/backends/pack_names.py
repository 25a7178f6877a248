"""What the tools of a pack come under. Apart from packs themselves, which load more."""

__all__ = ["pack_name"]


def pack_name(reference: str) -> str:
    """The name of the server that they count as, by what the configuration calls the pack.

    Of `pkg.weather:pack` it is `weather`, of the entry point `weather` too.
    """
    module, colon, attribute = reference.partition(":")
    last = attribute.rpartition(".")[2]
    return module.rpartition(".")[2] if last.lower() in ("pack", "") and colon else last or module
