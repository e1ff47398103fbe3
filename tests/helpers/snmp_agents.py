"""What tests do to simulated SNMP agents: rows that disappear, and engines that restart."""


def remove_below(agent, prefix):
    """Remove all rows whose identifiers begin with `prefix`: a column, or a table."""
    agent.rows.remove(*agent.rows.span(prefix))


def reboot(engine, boots=None):
    """Reset the time of an engine; its boots increase by one where none are given."""
    engine.boots = engine.boots + 1 if boots is None else boots
    engine.__post_init__()
