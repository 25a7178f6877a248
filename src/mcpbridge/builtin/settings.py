"""The `builtin` section of the configuration: tools that the bridge has itself."""

from pydantic import BaseModel, ConfigDict

from mcpbridge.builtin.cli_settings import GhCliSettings, GitCliSettings, GwsCliSettings
from mcpbridge.builtin.code_settings import CodeExecuteSettings
from mcpbridge.builtin.defaults import BuiltinDefaults
from mcpbridge.builtin.fetch_settings import CryptoPriceSettings, HttpGetSettings, WebSearchSettings
from mcpbridge.builtin.files_settings import FilesSettings

__all__ = ["BuiltinSettings"]


class BuiltinSettings(BuiltinDefaults, BaseModel):
    """The `builtin` section, with what is set of single tools."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    web_search: WebSearchSettings = WebSearchSettings()
    """Of `web-search`."""

    http_get: HttpGetSettings = HttpGetSettings()
    """Of `http-get`."""

    crypto_price: CryptoPriceSettings = CryptoPriceSettings()
    """Of `crypto-price`."""

    files: FilesSettings = FilesSettings()
    """Of the four tools for files."""

    code_execute: CodeExecuteSettings = CodeExecuteSettings()
    """Of `code-execute`."""

    git_cli: GitCliSettings = GitCliSettings()
    """Of `git-cli`."""

    gh_cli: GhCliSettings = GhCliSettings()
    """Of `gh-cli`."""

    gws_cli: GwsCliSettings = GwsCliSettings()
    """Of `gws-cli`."""
