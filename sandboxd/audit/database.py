"""What the audit database is: its schema. Opened by `store` to write and by `query` to read."""

from sandboxd.database import Schema

SCHEMA = Schema(
    kind="audit",
    application=0x53424175,  # "SBAu"
    steps=(
        """
        CREATE TABLE records (
            row INTEGER PRIMARY KEY,
            id TEXT NOT NULL,
            ts REAL NOT NULL,
            event TEXT NOT NULL,
            agent TEXT NOT NULL,
            sandbox TEXT NOT NULL,
            workload TEXT NOT NULL,
            host TEXT,
            ip TEXT,
            verdict TEXT,
            connection TEXT NOT NULL,
            writer TEXT NOT NULL,
            seq INTEGER NOT NULL,
            record TEXT NOT NULL,
            UNIQUE (writer, seq)
        );
        CREATE INDEX records_id ON records (id);
        CREATE INDEX records_ts ON records (ts);
        CREATE INDEX records_connection ON records (connection) WHERE connection != ''
        """,
    ),
)
