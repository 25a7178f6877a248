"""The `builtin` section of the configuration: tools that the bridge has itself."""

from pydantic import BaseModel, ConfigDict

from mcpbridge.tools.builtin.base_settings import BuiltinDefaults
from mcpbridge.tools.builtin.code.settings import CodeExecuteSettings
from mcpbridge.tools.builtin.files.settings import FilesSettings
from mcpbridge.tools.builtin.programs.settings import GhCliSettings, GitCliSettings, GwsCliSettings
from mcpbridge.tools.builtin.web.settings import CryptoPriceSettings, HttpGetSettings, WebSearchSettings


class BuiltinSettings(BuiltinDefaults, BaseModel):
    """The `builtin` section, with the settings of single tools."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    web_search: WebSearchSettings = WebSearchSettings.model_construct()
    """Settings of `web-search`."""

    http_get: HttpGetSettings = HttpGetSettings.model_construct()
    """Settings of `http-get`."""

    crypto_price: CryptoPriceSettings = CryptoPriceSettings.model_construct()
    """Settings of `crypto-price`."""

    files: FilesSettings = FilesSettings.model_construct()
    """Settings of the four file tools."""

    code_execute: CodeExecuteSettings = CodeExecuteSettings.model_construct()
    """Settings of `code-execute`."""

    git_cli: GitCliSettings = GitCliSettings.model_construct()
    """Settings of `git-cli`."""

    gh_cli: GhCliSettings = GhCliSettings.model_construct()
    """Settings of `gh-cli`."""

    gws_cli: GwsCliSettings = GwsCliSettings.model_construct()
    """Settings of `gws-cli`."""
