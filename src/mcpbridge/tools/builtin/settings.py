"""The `builtin` section of the configuration: tools that the bridge has itself."""

from pydantic import BaseModel, ConfigDict

from mcpbridge.tools.builtin.base_settings import BuiltinDefaults
from mcpbridge.tools.builtin.code.settings import CodeExecuteSettings
from mcpbridge.tools.builtin.files.settings import FilesSettings
from mcpbridge.tools.builtin.programs.settings import GhCliSettings, GitCliSettings, GwsCliSettings
from mcpbridge.tools.builtin.web.settings import CryptoPriceSettings, HttpGetSettings, WebSearchSettings


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
