"""The `builtin` section of the configuration: tools that the bridge has itself."""

from pydantic import BaseModel, ConfigDict

from mcpbridge.tools.builtin.base_settings import BuiltinDefaults
from mcpbridge.tools.builtin.code.settings import CodeExecuteSettings
from mcpbridge.tools.builtin.files.settings import FilesSettings
from mcpbridge.tools.builtin.programs.settings import GhCliSettings, GitCliSettings, GwsCliSettings
from mcpbridge.tools.builtin.web.settings import CryptoPriceSettings, HttpGetSettings, WebSearchSettings


class BuiltinSettings(BuiltinDefaults, BaseModel):
    """The `builtin` section, with the settings of single tools."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    web_search: WebSearchSettings = WebSearchSettings()
    """Settings of `web-search`."""

    http_get: HttpGetSettings = HttpGetSettings()
    """Settings of `http-get`."""

    crypto_price: CryptoPriceSettings = CryptoPriceSettings()
    """Settings of `crypto-price`."""

    files: FilesSettings = FilesSettings()
    """Settings of the four file tools."""

    code_execute: CodeExecuteSettings = CodeExecuteSettings()
    """Settings of `code-execute`."""

    git_cli: GitCliSettings = GitCliSettings()
    """Settings of `git-cli`."""

    gh_cli: GhCliSettings = GhCliSettings()
    """Settings of `gh-cli`."""

    gws_cli: GwsCliSettings = GwsCliSettings()
    """Settings of `gws-cli`."""
