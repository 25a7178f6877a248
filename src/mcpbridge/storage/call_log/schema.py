"""The tables of the call log, as the steps that led to them.

Rows of calls and events are never changed: triggers refuse that, and refuse to delete rows that the table `forgotten`
does not name first, as retention does (`retention.py`). So a reader of the file sees how far retention went, and
numbers missing elsewhere were taken out. This guards against accidents, not against somebody who has the file and means
to change it. Minutes are sums, which are only added.
"""

from mcpbridge.storage.sqlite.database import Schema

SCHEMA = Schema(
    0x6D63706C,  # "mcpl"
    [
        [
            """
            CREATE TABLE call (
                id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, seconds REAL NOT NULL,
                method TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, client TEXT NOT NULL,
                principal TEXT NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL, outcome TEXT NOT NULL,
                error TEXT NOT NULL, arguments_size INTEGER NOT NULL, arguments_digest BLOB NOT NULL,
                result_size INTEGER NOT NULL, result_digest BLOB NOT NULL, arguments BLOB, result BLOB, facts TEXT
            )
            """,
            """
            CREATE TABLE event (
                id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, kind TEXT NOT NULL, tool TEXT NOT NULL,
                client TEXT NOT NULL, principal TEXT NOT NULL, session TEXT NOT NULL, arguments_digest BLOB,
                who TEXT NOT NULL, detail TEXT NOT NULL, facts TEXT
            )
            """,
            "CREATE TABLE forgotten (log TEXT PRIMARY KEY, through INTEGER NOT NULL)",
            "INSERT INTO forgotten VALUES ('call', 0), ('event', 0)",
            """
            CREATE TRIGGER call_is_final BEFORE UPDATE ON call
            BEGIN SELECT raise(ABORT, 'the call log is append-only'); END
            """,
            """
            CREATE TRIGGER event_is_final BEFORE UPDATE ON event
            BEGIN SELECT raise(ABORT, 'the call log is append-only'); END
            """,
            """
            CREATE TRIGGER call_stays BEFORE DELETE ON call
            WHEN OLD.id > (SELECT through FROM forgotten WHERE log = 'call')
            BEGIN SELECT raise(ABORT, 'the call log is append-only'); END
            """,
            """
            CREATE TRIGGER event_stays BEFORE DELETE ON event
            WHEN OLD.id > (SELECT through FROM forgotten WHERE log = 'event')
            BEGIN SELECT raise(ABORT, 'the call log is append-only'); END
            """,
        ],
        [
            """
            CREATE TABLE running (
                owner TEXT NOT NULL, number INTEGER NOT NULL, at REAL NOT NULL, seconds REAL NOT NULL,
                method TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, client TEXT NOT NULL,
                principal TEXT NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL, outcome TEXT NOT NULL,
                error TEXT NOT NULL, arguments_size INTEGER NOT NULL, arguments_digest BLOB NOT NULL,
                result_size INTEGER NOT NULL, result_digest BLOB NOT NULL, arguments BLOB, result BLOB, facts TEXT,
                PRIMARY KEY (owner, number)
            ) WITHOUT ROWID
            """,
        ],
        [
            # The content of calls has a table of its own: a page of calls is read without it.
            *(
                f"ALTER TABLE {table} ADD COLUMN {column}"
                for table in ("call", "running")
                for column in (
                    *("uid INTEGER", "parent INTEGER", "revision TEXT", "stages TEXT", "tokens INTEGER"),
                    *("asked_size INTEGER", "original_size INTEGER", "original_tokens INTEGER", "handle TEXT"),
                )
            ),
            "ALTER TABLE running ADD COLUMN asked BLOB",
            "CREATE TABLE content (call INTEGER PRIMARY KEY, arguments BLOB, asked BLOB, result BLOB)",
            "CREATE INDEX call_at ON call (at)",
            "CREATE INDEX call_session ON call (session)",
            "CREATE INDEX call_parent ON call (parent) WHERE parent IS NOT NULL",
            """
            CREATE TRIGGER content_is_final BEFORE UPDATE ON content
            BEGIN SELECT raise(ABORT, 'the call log is append-only'); END
            """,
            """
            CREATE TRIGGER content_stays BEFORE DELETE ON content
            WHEN OLD.call > (SELECT through FROM forgotten WHERE log = 'call')
            BEGIN SELECT raise(ABORT, 'the call log is append-only'); END
            """,
            "ALTER TABLE event ADD COLUMN server TEXT NOT NULL DEFAULT ''",
            "CREATE INDEX event_session ON event (session) WHERE session <> ''",
            """
            CREATE TABLE minute (
                id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL,
                client TEXT NOT NULL, calls INTEGER NOT NULL, errors INTEGER NOT NULL, refused INTEGER NOT NULL,
                cancelled INTEGER NOT NULL, seconds REAL NOT NULL, upstream_seconds REAL NOT NULL,
                bytes_in INTEGER NOT NULL, bytes_out INTEGER NOT NULL, retries INTEGER NOT NULL,
                cache_hits INTEGER NOT NULL, buckets TEXT NOT NULL
            )
            """,
            "CREATE INDEX minute_at ON minute (at)",
            "INSERT INTO forgotten VALUES ('minute', 0)",
        ],
        [
            # Who called, from where, and what let the call pass (issue 23).
            f"ALTER TABLE {table} ADD COLUMN {column} TEXT"
            for table in ("call", "running")
            for column in ("user_name", "address", "client_version", "oauth_client", "role", "rule")
        ],
    ],
)
