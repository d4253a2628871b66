"""Records in SQLite (WAL) on the head's data disk, migrations, the pass lock. Only this room imports sqlite3."""
