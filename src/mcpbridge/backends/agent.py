"""Other agents as tools: remote ones over A2A, local ones as Python callables."""

from mcpbridge.backends.agent_settings import AgentSettings
from mcpbridge.backends.backend import Backend
from mcpbridge.backends.making import Surroundings

__all__ = ["AgentBackend"]


def AgentBackend(name: str, settings: AgentSettings, around: Surroundings) -> Backend:  # noqa: N802 - one of the classes that `making` makes, from outside
    """The backend of an agent."""
    if settings.is_remote:
        from mcpbridge.backends.a2a import RemoteAgent

        return RemoteAgent(name, settings, around)
    from mcpbridge.backends.local_agent import LocalAgent

    return LocalAgent(name, settings, around)
