"""The table of all documents: a command's name, a version, and what the document has.

The version goes up when a field goes, or means something else. A new field is no new version.
"""

from collections.abc import Mapping

from mcpbridge.app.cli.json_formats import (
    approvals,
    audit,
    calls,
    daemon,
    fleet,
    log,
    servers,
    setup,
    shared,
    tools,
    usage,
)

FORMATS: Mapping[str, type] = {
    "demo/1": daemon.Demo,
    # -- setting up
    "init/1": setup.Init,
    "import/1": setup.Import,
    "install/1": setup.ClientChanges,
    "uninstall/1": setup.ClientChanges,
    "doctor/1": servers.Doctor,
    # -- the daemon
    "up/1": daemon.Started,
    "down/1": daemon.Down,
    "restart/1": daemon.Started,
    "reload/1": daemon.Reload,
    "logs/1": daemon.LogLine,
    "ui/1": daemon.Console,
    "service-install/1": daemon.ServiceInstall,
    "service-uninstall/1": daemon.ServiceUninstall,
    "service-status/1": daemon.ServiceStatus,
    # -- the configuration
    "add/1": daemon.ConfigChange,
    "remove/1": daemon.ConfigChange,
    "enable/1": daemon.ConfigChange,
    "disable/1": daemon.ConfigChange,
    "trust/1": setup.Trusted,
    "trust-list/1": setup.TrustList,
    "untrust/1": setup.Untrusted,
    "secret-set/1": setup.StoredSecret,
    "secret-list/1": setup.SecretList,
    "secret-rm/1": setup.DeletedSecret,
    "users-list/1": setup.UserList,
    "users-revoke/1": setup.RevokedUser,
    "connections-link/1": setup.ConnectionsLink,
    "connections-set/1": setup.SetVariable,
    "connections-rotate/1": setup.RotatedKey,
    # -- servers and tools
    "manage/1": tools.Manage,
    "list/1": tools.List,
    "list-query/1": tools.ListQuery,
    "list-original/1": tools.ListOriginal,
    "search/1": tools.Search,
    "scan/1": tools.Scan,
    "lock/1": tools.WholeLock,
    "lock-diff/1": tools.LockChanges,
    "lock-approve/1": tools.LockWritten,
    "lock-sign/1": tools.LockSigned,
    "lock-verify/1": tools.LockVerified,
    "call/1": tools.Call,
    "read/1": tools.Read,
    "check/1": servers.Check,
    "check-names/1": servers.CheckNames,
    "login/1": servers.Login,
    "logout/1": servers.Logout,
    # -- what runs, and what ran
    "status/1": servers.Status,
    "fleet-members/1": fleet.FleetMembers,
    "fleet-status/1": fleet.FleetStatus,
    "fleet-drain/1": fleet.FleetDrained,
    "stats/1": calls.Stats,
    "usage/1": usage.Usage,
    "usage-quotas/1": usage.UsedQuotas,
    "tokens/1": tools.Tokens,
    "bench-routing/1": tools.BenchRouting,
    "log/1": log.LoggedCall,
    "log-events/1": log.LoggedEvent,
    "audit-show/1": audit.AuditLine,
    "audit-export/1": audit.AuditLine,
    "audit-verify/1": audit.AuditVerified,
    "audit-key/1": audit.AuditKey,
    "approvals/1": approvals.Approvals,
    "approve/1": approvals.Decided,
    "deny/1": approvals.Decided,
    "results/1": calls.Results,
    "results-show/1": calls.ResultShown,
    "results-rm/1": calls.ResultsForgotten,
    "cache/1": calls.Cache,
    "cache-clear/1": calls.CacheCleared,
    # -- for programs
    "token-new/1": setup.Token,
    "auth-explain/1": setup.AccessExplained,
    "auth-break-glass/1": setup.RoleTaken,
    "error/1": shared.Error,
}
"""By format, the fields besides `format` itself."""

WITHOUT: Mapping[str, str] = {
    "serve": "Standard output belongs to MCP. The bridge logs to standard error, as JSON in a pipe.",
    "daemon": "It prints nothing but its log, which is JSON in a pipe.",
    "completion": "It prints a script for a shell.",
    "top": "It is drawn on a terminal. `mcpbridge status --json` has the same servers and calls.",
    "rank": "It reads and writes JSON lines, which are described with [the command](commands.md#rank).",
}
"""Commands without `--json`, and why."""

LINES = ("logs/1", "log/1", "log-events/1", "audit-show/1", "audit-export/1")
"""Formats of which commands print one document a line."""
