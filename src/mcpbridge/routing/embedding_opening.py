"""The embedder that the settings ask for, with its file of vectors."""

import os
from collections.abc import Mapping

from mcpbridge.owned_tasks import OwnedTasks
from mcpbridge.routing.embedding import Embedder
from mcpbridge.routing.embedding_cache import VectorCache, cache_path
from mcpbridge.routing.embedding_vectors import Vectors
from mcpbridge.routing.settings import EmbedderSettings

__all__ = ["open_vectors"]


def open_vectors(
    settings: EmbedderSettings, tasks: OwnedTasks, *, environ: Mapping[str, str] = os.environ
) -> Vectors | None:
    """The vectors of the model in the settings; None if there is to be none. Nothing is read or contacted yet.

    They are to be closed after the tasks have ended.

    Raises:
        ConfigError: something is missing in the settings.
    """
    if settings.kind == "none":
        return None
    return Vectors(_embedder(settings), VectorCache(cache_path(environ)), tasks, timeout=settings.timeout)


def _embedder(settings: EmbedderSettings) -> Embedder:
    if settings.kind == "http":
        from mcpbridge.routing.embedding_http import HttpEmbedder

        return HttpEmbedder(settings)
    from mcpbridge.routing.embedding_local import LocalEmbedder

    return LocalEmbedder(settings.model)
