"""What to type about a problem: the terminal's counterpart of the admin's links."""

from shlex import quote

from django.db import DEFAULT_DB_ALIAS

from pubsub.monitoring.problems import Problem


def remedy(problem: Problem, using: str = DEFAULT_DB_ALIAS) -> str:
    """The command, or the SQL statement, to begin with; empty where there is none.

    >>> remedy(Problem(code="dead", text="…", topic="orders", group="mail"))
    'manage.py pubsub_group resume mail --topic=orders'
    """
    topic, group = quote(problem.topic), quote(problem.group)
    match problem.code:
        case "failing":
            command = f"pubsub_dead_letters list --topic={topic} --group={group}"
        case "waits-for-retry":
            command = f"pubsub_dead_letters replay --topic={topic} --group={group}"
        case "dead-letters" | "stopped":
            command = f"pubsub_dead_letters list --topic={topic} --group={group} --state=dead"
        case "dead" | "paused":
            command = f"pubsub_group resume {group} --topic={topic}"
        case "skewed":
            command = f"pubsub_status --topic={topic} --group={group} --partitions"
        case "disk":
            command = "run_cleanup --dry-run"
        case "missed":
            command = f"pubsub_group seek {group} --topic={topic} --by=0"  # acknowledges it
        case "behind":
            command = f"pubsub_group members {group} --topic={topic}"
        case "hanging":
            command = f"pubsub_workers stop {quote(problem.worker)} --now"
        case "not-moving":
            command = f"pubsub_tail {topic} --from={problem.offset} --max-events=1"
        case "no-handler":
            # Under which name it goes on, if at all, only the deploy knows.
            command = f"pubsub_group rename {group} NEW-NAME --topic={topic}"
        case "no-members":
            command = f"run_consumer --topic={topic} --group={group}"
        case "refused":
            command = f"run_consumer --topic={topic}"
        case "delayed" | "foreign" | "sequencer":
            command = "run_consumer"
        case "default-segment":
            command = "run_cleanup --once"
        case "xids-to-come":
            return (
                "UPDATE outbox_message_t SET xid = pg_current_xact_id() "
                "WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())"
            )
        case "sequencer-blocked" | "sequencer-silent" | "long-transaction" if problem.pid is not None:
            return f"SELECT pg_terminate_backend({problem.pid})"
        case _:
            return ""
    return f"manage.py {command}" + ("" if using == DEFAULT_DB_ALIAS else f" --database={quote(using)}")
