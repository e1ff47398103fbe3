"""`ib topology` and `ib diff` without a fabric: documents, their differences, and hostile names."""

import io
import json
import re
import subprocess

import msgspec
import pytest

from exporter import cli
from exporter.commands import ib
from exporter.config.errors import ConfigError
from exporter.linux.mad.umad import UmadError
from exporter.linux.mad.window import DatagramCounts
from exporter.sources.ibfabric import rendering
from exporter.sources.ibfabric.options import IbFabricOptions, PortChoice
from exporter.sources.ibfabric.saved_topology import SavedFabric, encode_json, parse_topology
from exporter.sources.ibfabric.topology_diff import compare
from tests.helpers.closed_pipe import without_reader

HOSTILE = 'a"b\\N{x}%s&lt;\x1b[31m\x9b2J\u202e\n]; evil [label="'
"""A name with control sequences of terminals, Graphviz and format strings."""


def guid(number: int) -> str:
    return f"{number:016x}"


def node(number: int, role: str = "", name: str = "", ports: tuple = ()) -> dict:
    """Return a switch if a role is given, else an adapter."""
    kind = "switch" if role else "adapter"
    common = {"host": "", "device": "", "system_guid": guid(number), "ports": list(ports)}
    return {"guid": guid(number), "kind": kind, "name": name or f"n{number}", "role": role, **common}


def link(one: tuple[int, int], other: tuple[int, int], gbits: float | None = 400.0, **given: object) -> dict:
    """Return an NDR link; not active if no speed is given."""
    speed = None if gbits is None else gbits * 1e9 / 8
    return {
        "ends": [{"guid": guid(end[0]), "port": end[1]} for end in sorted([one, other])],
        "state": "init" if gbits is None else "active",
        "width": "4X" if gbits == 400.0 else "2X",
        "generation": "NDR",
        "speed_bytes_per_second": speed,
        "expected_width": "4X",
        "expected_generation": "NDR",
        "expected_speed_bytes_per_second": 50e9,
        "degraded": None if speed is None else speed < 50e9,
        "errors": {},
        **given,
    }


def document(nodes: list[dict], links: list[dict]) -> dict:
    origin = {"guid": nodes[0]["guid"], "port": 1}
    about = {"version": 1, "subnet": "fe80-1", "taken": "2026-01-02T03:04:05Z", "origin": origin}
    return {**about, "nodes": nodes, "links": links}


def fabric(nodes: list[dict], links: list[dict]) -> SavedFabric:
    return parse_topology(json.dumps(document(nodes, links)).encode(), "file")


H1, H2, H3, LEAF1, LEAF2, SPINE = 1, 2, 3, 11, 12, 21
NODES = [node(H1), node(H2), node(LEAF1, "leaf"), node(LEAF2, "leaf"), node(SPINE, "spine")]
LINKS = [
    link((H1, 1), (LEAF1, 1)),
    link((H2, 1), (LEAF2, 1)),
    link((LEAF1, 9), (SPINE, 1)),
    link((LEAF2, 9), (SPINE, 2)),
]


def lines(before: SavedFabric, after: SavedFabric) -> list[str]:
    """Return the lines of the differences, without the header and the total."""
    return list(rendering.render_diff(compare(before, after)))[2:-1]


# --- differences


def test_swapped_hosts_are_two_moves():
    swapped = [link((H1, 1), (LEAF2, 1)), link((H2, 1), (LEAF1, 1)), *LINKS[2:]]
    assert lines(fabric(NODES, LINKS), fabric(NODES, swapped)) == [
        "moved n1 port 1: was at n11 port 1, is at n12 port 1",
        "moved n2 port 1: was at n12 port 1, is at n11 port 1",
    ]


def test_a_replaced_host_is_a_missing_and_a_new_node_and_a_move():
    nodes = [node(H1), node(H3), *NODES[2:]]
    links = [LINKS[0], link((H3, 1), (LEAF2, 1)), *LINKS[2:]]
    assert lines(fabric(NODES, LINKS), fabric(nodes, links)) == [
        f"missing adapter n2 ({guid(H2)})",
        f"new adapter n3 ({guid(H3)})",
        "moved n12 port 1: was at n2 port 1, is at n3 port 1",
    ]


def test_a_host_moved_to_the_port_of_a_missing_host_is_a_move_and_a_missing_link():
    links = [link((H1, 1), (LEAF2, 1)), *LINKS[2:]]
    assert lines(fabric(NODES, LINKS), fabric([node(H1), *NODES[2:]], links)) == [
        f"missing adapter n2 ({guid(H2)})",
        "moved n1 port 1: was at n11 port 1, is at n12 port 1",
        "missing link n2 port 1 -- n12 port 1",
    ]


def test_a_new_cable_and_a_link_whose_peer_does_not_respond():
    unanswered = {"port": 9, "state": "active", "unanswered": "timeout"}
    nodes = [*NODES[:3], node(LEAF2, "leaf", ports=(unanswered,)), NODES[4]]
    links = [*LINKS[:3], link((LEAF1, 10), (SPINE, 3))]
    assert lines(fabric(NODES, LINKS), fabric(nodes, links)) == [
        "missing link n12 port 9 -- n21 port 2: n12 port 9 is unanswered",
        "new link n11 port 10 -- n21 port 3",
    ]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (400.0, 200.0, ["slower link n12 port 9 -- n21 port 2: was 4X NDR 400 Gb/s, is 2X NDR 200 Gb/s"]),
        (200.0, 400.0, ["faster link n12 port 9 -- n21 port 2: was 2X NDR 200 Gb/s, is 4X NDR 400 Gb/s"]),
        (400.0, None, ["slower link n12 port 9 -- n21 port 2: was 4X NDR 400 Gb/s, is 2X NDR init"]),
        (None, 400.0, ["faster link n12 port 9 -- n21 port 2: was 2X NDR init, is 4X NDR 400 Gb/s"]),
        (400.0, 400.0, []),
    ],
)
def test_links_with_another_speed_are_slower_or_faster(before, after, words):
    old, new = ([*LINKS[:3], link((LEAF2, 9), (SPINE, 2), gbits)] for gbits in (before, after))
    assert lines(fabric(NODES, old), fabric(NODES, new)) == words


def test_an_unknown_speed_is_no_difference():
    unknown = link((LEAF2, 9), (SPINE, 2), speed_bytes_per_second=None)
    assert lines(fabric(NODES, LINKS), fabric(NODES, [*LINKS[:3], unknown])) == []


def test_a_renamed_node():
    nodes = [node(H1, name="gpu-1"), *NODES[1:]]
    assert lines(fabric(NODES, LINKS), fabric(nodes, LINKS)) == [f"renamed {guid(H1)}: was n1, is gpu-1"]


# --- files


def changed(*steps: object, to: object) -> bytes:
    """Return a document in which one value is replaced."""
    made = json.loads(json.dumps(document(NODES, LINKS)))
    at = made
    for step in steps[:-1]:
        at = at[step]
    at[steps[-1]] = to
    return json.dumps(made, indent=1).encode()


REMEDY = " save the fabric again with `fabric-exporter ib topology --json`"


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "f:1:1: is not JSON: Expecting value"),
        (b'{\n"version": 1,\n!', "f:3:1: is not JSON: Expecting property name"),
        (b"{\n\xff\xfe", "f:2: is not JSON: it is not valid UTF-8"),
        (b"[" * 100_000, "f: is not JSON: it is nested too deeply"),
        (b'{"version": 1, "version": 1}', "f: is not JSON: the key 'version' is duplicated"),
        (b'{"version": NaN}', "f: is not JSON: NaN is not a number"),
        (b"9" * 5000, "f: is not JSON: Exceeds the limit"),
        (b"[]", "f: expected a mapping, got a list"),
        (b"{}", "f: missing key 'version'; add it"),
        (changed("version", to=2), "f: version: is 2, supported is 1; use the release"),
        (changed("links", 1, "width", to=4), "f: links[1].width: expected a string, got 4; put it in quotes"),
        (
            changed("nodes", 0, "guid", to="0x1"),
            "f: nodes[0].guid: expected a string matching regex '^[0-9a-f]{16}$', got '0x1'",
        ),
        (changed("links", 0, "ends", 1, "port", to=-1), "f: links[0].ends[1].port: expected an integer >= 0, got -1"),
        (changed("nodes", 1, "guid", to=guid(H1)), f"f: nodes[1].guid: {guid(H1)} occurs twice"),
        (changed("links", 1, "ends", 0, "guid", to=guid(99)), f"f: links[1].ends[0].guid: {guid(99)} is not in nodes"),
        (
            changed("links", 1, "ends", 0, "guid", to=guid(H1)),
            f"f: links[1].ends[0]: port 1 of {guid(H1)} is an end of",
        ),
        (changed("links", 0, "width", to=None), "f: links[0].width: expected a string, got an empty value"),
        (changed("links", 0, "errors", to={"x": {"y": "z"}}), "f: links[0].errors.x.y: expected an integer, got 'z'"),
    ],
)
def test_invalid_documents_are_errors_with_place_and_remedy(raw, text):
    with pytest.raises(ConfigError) as caught:
        parse_topology(raw, "f")
    assert str(caught.value).startswith(text)
    assert str(caught.value).endswith(REMEDY)


def test_a_long_or_hostile_value_is_truncated_and_escaped():
    with pytest.raises(ConfigError) as caught:
        parse_topology(changed("nodes", 0, "guid", to="\x1b[2J" * 1000), "f")
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def test_a_document_survives_a_round_trip():
    made = fabric(NODES, LINKS)
    assert parse_topology(encode_json(made).encode(), "f") == made
    assert encode_json(parse_topology(encode_json(made).encode(), "f")) == encode_json(made)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda _: None, "cannot be read: No such file or directory"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
        (lambda path: path.write_bytes(b" " * 101), "cannot be read: it is larger than 100 bytes"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path, monkeypatch, capsys, make, text):
    monkeypatch.setattr(ib, "MAX_SIZE", 100)
    path = tmp_path / "f"
    make(path)
    assert cli.main(["ib", "diff", str(path), str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"fabric-exporter: {path}: {text}; check its name and its permissions\n"


def test_two_files_are_compared_without_a_port(tmp_path, capsys):
    (tmp_path / "a").write_text(json.dumps(document(NODES, LINKS)))
    (tmp_path / "b").write_text(json.dumps(document(NODES, LINKS[:3])))
    asked = ["ib", "diff", str(tmp_path / "a")]
    assert cli.main([*asked, str(tmp_path / "a")]) == 0
    assert cli.main([*asked, str(tmp_path / "b")]) == 1
    capsys.readouterr()
    assert cli.main([*asked, str(tmp_path / "b"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    ((one, other),) = (link["ends"] for link in found["missing_links"])
    assert (one["name"], one["port"], other["name"], other["port"]) == ("n12", 9, "n21", 2)


@pytest.mark.parametrize("flags", [(), ("--json",)], ids=" ".join)
@pytest.mark.parametrize(("links", "status"), [(LINKS, 0), (LINKS[:3], 1)], ids=["same", "different"])
def test_a_reader_that_ended_changes_no_exit_status(tmp_path, links, status, flags):
    """As `ib diff | head -1`."""
    (tmp_path / "a").write_text(json.dumps(document(NODES, LINKS)))
    (tmp_path / "b").write_text(json.dumps(document(NODES, links)))
    done = without_reader("ib", "diff", str(tmp_path / "a"), str(tmp_path / "b"), *flags)
    assert (done.returncode, done.stderr) == (status, "")


# --- flags and failures


class FailingOpener:
    """A port opener that finds no port."""

    def local(self, choice):
        raise UmadError("absent", f"{choice.device}\x1b[2J: nothing there")

    def open(self, port):
        raise AssertionError("never")


def test_errors_are_printed_in_one_line(tmp_path, capsys):
    asking = ib.FabricAccess(PortChoice(device="mlx5_0"), IbFabricOptions())
    assert ib.topology(asking, "tree", counters=True, opener=FailingOpener()) == 1
    (tmp_path / "f").write_text(json.dumps(document(NODES, LINKS)))
    assert ib.diff(asking, tmp_path / "f", None, as_json=False, opener=FailingOpener()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "fabric-exporter: mlx5_0\\x1b[2J: nothing there\n" * 2


def test_the_m_key_is_read_and_not_printed(tmp_path, capsys):
    (tmp_path / "key").write_text("top-secret")
    assert cli.main(["ib", "topology", "--m-key-file", str(tmp_path / "key")]) == 1
    captured = capsys.readouterr().err
    assert "not a 64-bit number" in captured
    assert "top-secret" not in captured


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--window", "0"], "--window is 0; give 1 to 1024"),
        (["--per-destination", "17"], "--per-destination is 17; give 1 to 16"),
        (["--per-second", "1"], "--per-second is 1; give 10 to 1000000"),
        (["--retries", "-1"], "--retries is -1; give 0 to 10"),
        (["--timeout", "5"], "--timeout is '5'; expected a duration with its unit, such as 500ms, 5s or 1m30s"),
    ],
)
def test_invalid_limits_are_errors_with_the_flag(capsys, flags, text):
    assert cli.main(["ib", "topology", *flags]) == 2
    assert capsys.readouterr().err == f"fabric-exporter: {text}\n"


def test_flags_set_port_and_limits(monkeypatch):
    asked = []
    monkeypatch.setattr(ib, "topology", lambda asking, form, *, counters: asked.append((asking, form, counters)))
    given = "--device mlx5_1 --port 2 --window 8 --per-destination 2 --per-second 100 --retries 0 --timeout 2s --dot"
    cli.main(["ib", "topology", *given.split(), "--no-counters"])
    ((asking, form, counters),) = asked
    assert (asking.choice, form, counters) == (PortChoice(device="mlx5_1", port=2), "dot", False)
    limits = asking.options.limits()
    assert (limits.window, limits.per_destination, limits.per_second) == (8, 2, 100.0)
    assert (limits.timeout, limits.tries) == (2.0, 1)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_after_a_second_and_cleared(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(ib, "monotonic", lambda: now[0])
    terminal = Terminal()
    progress = ib._Progress(terminal)
    progress.window = type("W", (), {"counts": DatagramCounts(received=5, timeouts=2)})
    now[0] = 100.9
    assert not progress.update()
    progress.clear()
    assert terminal.getvalue() == ""
    now[0] = 102.0
    assert not progress.update()
    assert not progress.update(), "at an interval"
    progress.clear()
    assert terminal.getvalue() == "\r\x1b[2m2 s: 5 replies, 2 timeouts\x1b[0m\x1b[K\r\x1b[K"


@pytest.mark.parametrize(("no_colour", "coloured"), [("", True), ("1", False)])
def test_colours_are_for_terminals(tmp_path, monkeypatch, no_colour, coloured):
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr("sys.stdout", Terminal())
    for name, links in (("a", LINKS), ("b", LINKS[:3])):
        (tmp_path / name).write_text(json.dumps(document(NODES, links)))
    assert cli.main(["ib", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert ("\x1b[31mmissing link" in ib.sys.stdout.getvalue()) == coloured


# --- rendering


def hostile() -> SavedFabric:
    """Return a topology with hostile names."""
    nodes = [node(H1, name=HOSTILE), node(LEAF1, "leaf", name=HOSTILE + "{0}")]
    return fabric(nodes, [link((H1, 1), (LEAF1, 1), errors={f"{guid(H1)}:1": {HOSTILE: 1}})])


def test_control_sequences_in_names_are_escaped():
    made = hostile()
    other = msgspec.structs.replace(made, nodes=(), links=())
    for line in (
        *rendering.render_tree(made),
        *rendering.render_diff(compare(made, other)),
        *rendering.render_dot(made),
    ):
        assert line.isprintable(), line
    assert any('a"b\\N{x}%s&lt;\\x1b[31m\\x9b2J\\u202e\\x0a]' in line for line in rendering.render_tree(made))


def test_graphviz_shows_any_name_unchanged(program):
    done = subprocess.run(
        [program("dot"), "-Tjson"],
        input="\n".join(rendering.render_dot(hostile())),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    drawn = json.loads(done.stdout)
    shown = {
        one["name"]: one["_ldraw_"][-1]["text"] for one in drawn["objects"] if not one["name"].startswith("cluster")
    }
    assert shown == {guid(H1): rendering.escape(HOSTILE), guid(LEAF1): rendering.escape(HOSTILE + "{0}")}
    assert len(drawn["edges"]) == 1


def test_edges_have_the_colours_of_their_problems():
    erring = {"errors": {f"{guid(LEAF1)}:9": {"symbol_errors": 1}}}
    links = [
        LINKS[0],
        link((H2, 1), (LEAF2, 1), None),
        link((LEAF1, 9), (SPINE, 1), 200.0, **erring),
        link((LEAF2, 9), (SPINE, 2), 200.0),
    ]
    unanswered = {"port": 5, "state": "active", "unanswered": "timeout"}
    nodes = [*NODES[:2], node(LEAF1, "leaf", ports=(unanswered,)), *NODES[3:]]
    drawn = "\n".join(rendering.render_dot(fabric(nodes, links)))
    found = dict(re.findall(r'"0+(\w+)" -- "[^"]+" \[taillabel="1?9?".*?label="\w+ \w+"(.*)\];', drawn))
    assert found == {
        "1": "",
        "2": ", style=dashed, color=gray",
        "b": ', color="red:orange"',
        "c": ', color="orange"',
    }
    assert f'"{guid(LEAF1)}" -- "{guid(LEAF1)}:5" [taillabel="5", color=red, style=dashed];' in drawn


def test_the_tree_marks_problems():
    saturated = {"port": 9, "state": "active", "errors": {"symbol_errors": 65535}, "saturated": ["symbol_errors"]}
    unanswered = {"port": 5, "state": "active", "unanswered": "timeout", "errors": {"link_down": 2}}
    downs = tuple({"port": port, "state": "down"} for port in (2, 3, 4, 7))
    nodes = [node(H1), node(H2), node(LEAF1, "leaf", ports=(*downs, unanswered, saturated)), *NODES[3:]]
    links = [
        LINKS[0],
        link((H2, 1), (LEAF2, 1), None),
        link((LEAF1, 9), (SPINE, 1), 200.0, errors={f"{guid(LEAF1)}:9": {"symbol_errors": 65535}}),
        link((LEAF2, 9), (SPINE, 2), errors={f"{guid(SPINE)}:2": {"receive_errors": 3}}),
    ]
    errors = "errors here: symbol_errors=65535 (saturated)"
    assert list(rendering.render_tree(fabric(nodes, links))) == [
        "fabric fe80-1, read from n1 port 1, 2026-01-02 03:04:05 UTC",
        "",
        f"leaf n11 ({guid(LEAF1)})",
        "  hosts",
        "     1  n1 port 1  4X NDR 400 Gb/s",
        "  uplinks",
        f"     9  n21 port 1  2X NDR 200 Gb/s  degraded (supports 4X NDR 400 Gb/s)  {errors}",
        "     5  the link is up, its peer does not respond (timeout); errors here: link_down=2",
        "  down: 2-4, 7",
        "",
        f"leaf n12 ({guid(LEAF2)})",
        "  hosts",
        "     1  n2 port 1  2X NDR  init",
        "  uplinks",
        "     9  n21 port 2  4X NDR 400 Gb/s  errors there: receive_errors=3",
        "",
        f"spine n21 ({guid(SPINE)})",
        "  listed at their lower ends: 2 links, 1 degraded, 2 with errors",
        "",
        "3 switches, 2 adapters, 4 links, 1 degraded, 2 with errors, 1 not active, 1 unanswered",
    ]


def test_nodes_are_sorted_by_the_numbers_in_their_names():
    nodes = [node(place, "leaf", name=f"leaf{number}") for place, number in enumerate(("1", "012", "11", "9", "2"))]
    found = re.findall(r"^leaf (\w+)", "\n".join(rendering.render_tree(fabric(nodes, []))), re.MULTILINE)
    assert found == ["leaf1", "leaf2", "leaf9", "leaf11", "leaf012"]


def test_linked_adapters_and_an_adapter_without_links_are_listed():
    text = "\n".join(rendering.render_tree(fabric([node(H1), node(H2), node(H3)], [link((H1, 1), (H2, 1))])))
    assert text.count("n2 port 1") == 1
    assert f"adapter n3 ({guid(H3)})" in text
