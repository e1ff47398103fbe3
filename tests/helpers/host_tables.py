"""What a source reads of a host, in a form that two readings can be compared by."""

from exporter.core.definition import Context

IDENTITIES = {"mac", "node_guid", "serial"}


async def tables(definition, host, **options):
    """Read a source twice; return {ending: {row: value}} of the second reading by table, without identities."""
    (source,) = definition.build(definition.options(keep=("*",), **options), Context(host))
    try:
        await source.read()
        reading = await source.read()
    finally:
        await source.close()
    return [
        {
            ending: dict(zip(table.rows.keys, without_identities(table, ending, column.values), strict=True))
            for ending, column in table.columns.items()
        }
        for table in reading.tables
    ], sorted((failure.device, failure.reason) for failure in reading.failures)


def without_identities(table, ending, values):
    labels = table.schema.metrics[ending].extra
    if not labels:
        return values
    return [
        None
        if value is None
        else {name: text for name, text in zip(labels, value, strict=True) if name not in IDENTITIES}
        for value in values
    ]
