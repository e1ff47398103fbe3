"""Which format and encoding a client gets."""

import pytest

from exporter.outputs.negotiation import Format, accepts_gzip, choose_format

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROTOBUF_FIRST = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6," + PROMETHEUS_3
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "format_"),
    [
        (PROMETHEUS_3, Format.OPENMETRICS),
        (PROMETHEUS_2, Format.OPENMETRICS),
        (PROTOBUF_FIRST, Format.OPENMETRICS),
        (BROWSER, Format.TEXT),
        ("", Format.TEXT),
        ("*/*", Format.TEXT),
        ("application/*", Format.OPENMETRICS),
        ("text/*;q=0.4,application/*;q=0.5", Format.OPENMETRICS),
        ("application/openmetrics-text", Format.OPENMETRICS),
        ('Application/OpenMetrics-Text; Version="1.0.0"; charset=utf-8', Format.OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1", Format.OPENMETRICS),
        ("application/openmetrics-text;version=2.0.0", Format.TEXT),
        (
            "application/openmetrics-text;version=2.0.0,application/openmetrics-text;version=1.0.0;q=0.1",
            Format.OPENMETRICS,
        ),
        ("application/openmetrics-text;q=0.2,text/plain;q=0.3", Format.TEXT),
        ("text/plain;version=1.0.0,application/openmetrics-text;q=0.9", Format.TEXT),
        ("text/plain;version=7,application/openmetrics-text;q=0.1", Format.OPENMETRICS),
        # equal quality: what was mentioned first
        ("text/plain,application/openmetrics-text", Format.TEXT),
        ("application/openmetrics-text,text/plain", Format.OPENMETRICS),
        # the more specific range gives the quality, regardless of the wider one
        ("application/openmetrics-text;q=0,*/*", Format.TEXT),
        ("*/*;q=1,text/plain;q=0", Format.OPENMETRICS),
        ("application/openmetrics-text;version=1.0.0;q=0.1,application/openmetrics-text,text/plain;q=0.5", Format.TEXT),
        # nothing acceptable, or nonsense
        ("text/plain;q=0,application/openmetrics-text;q=0", Format.TEXT),
        (";;,,=;q,/;q=,\x00*/", Format.TEXT),
        ("application/openmetrics-text;q=2", Format.TEXT),
        ("application/openmetrics-text;q=nan,text/plain;q=0.1", Format.TEXT),
        ("application/openmetrics-text;q=-1", Format.TEXT),
        ("x/y," * 5000 + "application/openmetrics-text", Format.TEXT),
    ],
)
def test_format(accept, format_):
    assert choose_format(accept) is format_


def test_content_types_are_those_of_the_specifications():
    assert Format.TEXT.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert Format.OPENMETRICS.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"


@pytest.mark.parametrize(
    ("accept_encoding", "accepted"),
    [
        ("gzip", True),
        ("gzip, deflate, br", True),
        ("GZIP;Q=0.5", True),
        ("x-gzip", True),
        ("*", True),
        ("br;q=1, *;q=0.1", True),
        ("", False),
        ("identity", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000, *", False),
        ("*;q=0", False),
        ("gzip;q=oops", False),
        ("identity;q=1, gzip;q=0.5", False),
        ("identity;q=0.5, gzip;q=1", True),
    ],
)
def test_gzip(accept_encoding, accepted):
    assert accepts_gzip(accept_encoding) is accepted
