"""The columns of the log in Spark, the same for every way of reading it."""

COLUMNS = {
    "topic": "string",
    "c_offset": "bigint",
    "partition_id": "int",
    "position": "bigint",
    "event_id": "string",
    "type": "string",
    "key": "string",
    "host_id": "string",
    "user_id": "string",
    "to_group": "string",
    "transaction_id": "string",
    "payload": "string",
    "metadata": "string",
    "created_at": "timestamp",
}

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
