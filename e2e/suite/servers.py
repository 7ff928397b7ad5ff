"""The servers and the calls made to each. A new server or case is one entry here.

In commands, environment and arguments `{dir}` is a working folder made by fixtures.py and `{web}` a page served on
loopback. Cases run in order, on one connection, and leave the server as they found it: behind the gateway one
server process answers several clients.
"""

from dataclasses import dataclass, field


@dataclass
class Case:
    name: str
    tool: str
    arguments: dict = field(default_factory=dict)
    gives: str = "text"
    """What a direct call must give, so that no case silently stops testing what it is for: `text`, `image`, `audio`,
    `resource_link`, `resource`, `structured`, `isError`, `error CODE`."""
    progress: bool = False
    """Ask for progress, and compare the notifications too."""
    once: str = ""
    """Why it can be made only once per server process, if so."""
    dated: bool = False
    """The answer holds today's date: if it differs, it is asked for directly once more, since midnight may have passed."""
    misfit: bool = False
    """The arguments do not fit the schema: the gateway answers by itself, and only direct calls are compared."""


@dataclass
class Server:
    name: str
    command: object
    """From what is installed to the command line."""
    cases: list
    env: dict = field(default_factory=dict)
    modern: bool = False
    """It speaks 2026-07-28, so that direct results exist in that era too."""
    remote: bool = False
    """It is started beforehand, on the port in PORT, and reached over streamable HTTP."""
    tapped: bool = False
    """Its messages are written down on the way, for the cancellation check."""


def node(path, *args):
    return lambda at: [at.node, at.package(path), *args]


def python(generation, script, *args):
    return lambda at: [at.script(generation, script), *args]


OFFICIAL = "@modelcontextprotocol"

SERVERS = [
    Server(
        "everything",
        node(f"{OFFICIAL}/server-everything/dist/index.js"),
        tapped=True,
        cases=[
            Case("sum", "get-sum", {"a": 2, "b": 40}),
            Case("unicode", "echo", {"message": "naïve ☃ 漢字 \U0001f980 \" \\ \u2028 \n tab\t"}),
            Case("empty text", "echo", {"message": ""}),
            Case("long text", "echo", {"message": "0123456789abcdef" * 16384}),
            Case("image", "get-tiny-image", {}, gives="image"),
            Case("annotations", "get-annotated-message", {"messageType": "debug", "includeImage": True}, gives="image"),
            Case("resource links", "get-resource-links", {"count": 4}, gives="resource_link"),
            Case(
                "embedded blob",
                "gzip-file-as-resource",
                {"name": "a.gz", "data": "data:text/plain,hello", "outputType": "resource"},
                gives="resource",
            ),
            Case("structured", "get-structured-content", {"location": "Chicago"}, gives="structured"),
            Case("defaults", "get-resource-links", {}, gives="resource_link"),
            Case(
                "tool error",
                "get-resource-reference",
                {"resourceType": "Text", "resourceId": 0.5},
                gives="isError",
            ),
            Case("task required", "simulate-research-query", {"topic": "crabs"}, gives="isError"),
            Case("misfit", "get-sum", {"a": "x"}, gives="isError", misfit=True),
            Case(
                "progress",
                "trigger-long-running-operation",
                {"duration": 0.4, "steps": 8},
                progress=True,
            ),
            Case(
                "progress in a burst",
                "trigger-long-running-operation",
                {"duration": 0.01, "steps": 40},
                progress=True,
            ),
            Case("no progress unasked", "trigger-long-running-operation", {"duration": 0.1, "steps": 2}),
        ],
    ),
    Server(
        "filesystem",
        node(f"{OFFICIAL}/server-filesystem/dist/index.js", "{dir}/files"),
        cases=[
            Case("read", "read_text_file", {"path": "{dir}/files/hello.txt"}, gives="structured"),
            Case("read head", "read_text_file", {"path": "{dir}/files/lines.txt", "head": 2}),
            Case("audio", "read_media_file", {"path": "{dir}/files/beep.wav"}, gives="audio"),
            Case("image", "read_media_file", {"path": "{dir}/files/dot.png"}, gives="image"),
            Case("list", "list_directory", {"path": "{dir}/files"}),
            Case("many", "read_multiple_files", {"paths": ["{dir}/files/hello.txt", "{dir}/files/none"]}),
            Case("write", "write_file", {"path": "{dir}/files/new.txt", "content": "new"}),
            Case("move", "move_file", {"source": "{dir}/files/new.txt", "destination": "{dir}/files/.moved"}),
            Case("move back", "move_file", {"source": "{dir}/files/.moved", "destination": "{dir}/files/new.txt"}),
            Case("outside", "read_text_file", {"path": "/etc/hostname"}, gives="isError"),
            Case("missing", "read_text_file", {"path": "{dir}/files/none.txt"}, gives="isError"),
        ],
    ),
    Server(
        "memory",
        node(f"{OFFICIAL}/server-memory/dist/index.js"),
        env={"MEMORY_FILE_PATH": "{dir}/memory.jsonl"},
        cases=[
            Case(
                "create",
                "create_entities",
                {"entities": [{"name": "Ferris", "entityType": "crab", "observations": ["orange", "friendly"]}]},
                gives="structured",
            ),
            Case("search", "search_nodes", {"query": "orange"}, gives="structured"),
            Case(
                "error",
                "add_observations",
                {"observations": [{"entityName": "Nobody", "contents": ["x"]}]},
                gives="isError",
            ),
            Case("delete", "delete_entities", {"entityNames": ["Ferris"]}, gives="structured"),
            Case("empty", "read_graph", {}, gives="structured"),
        ],
    ),
    Server(
        "thinking",
        node(f"{OFFICIAL}/server-sequential-thinking/dist/index.js"),
        env={"DISABLE_THOUGHT_LOGGING": "true"},
        cases=[
            Case(
                "thought",
                "sequentialthinking",
                {"thought": "one", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
                gives="structured",
                once="the server counts its thoughts",
            ),
        ],
    ),
    Server(
        "postgres",
        # Nothing listens on port 1: the server throws, and its SDK answers with a JSON-RPC error.
        node(f"{OFFICIAL}/server-postgres/dist/index.js", "postgresql://nobody@127.0.0.1:1/none"),
        cases=[Case("protocol error", "query", {"sql": "select 1"}, gives="error -32603")],
    ),
    Server(
        "transcript",
        node("@kimtaeyoon83/mcp-server-youtube-transcript/dist/index.js"),
        cases=[
            Case("invalid params", "get_transcript", {"url": "", "lang": "en"}, gives="error -32602"),
            Case("invalid id", "get_transcript", {"url": "no video", "lang": "en"}, gives="error -32602"),
        ],
    ),
    Server(
        "git",
        python("mcp2", "mcp-server-git", "--repository", "{dir}/repo"),
        modern=True,
        cases=[
            Case("status", "git_status", {"repo_path": "{dir}/repo"}),
            Case("log", "git_log", {"repo_path": "{dir}/repo", "max_count": 2}),
            Case("show", "git_show", {"repo_path": "{dir}/repo", "revision": "HEAD"}),
            Case("diff", "git_diff_unstaged", {"repo_path": "{dir}/repo"}),
            Case("outside", "git_status", {"repo_path": "/"}, gives="isError"),
        ],
    ),
    Server(
        "time",
        python("mcp2", "mcp-server-time", "--local-timezone", "Europe/Oslo"),
        modern=True,
        cases=[
            Case(
                "convert",
                "convert_time",
                {"source_timezone": "Asia/Tokyo", "time": "16:30", "target_timezone": "Asia/Kathmandu"},
                gives="structured",
                dated=True,
            ),
            Case("bad zone", "get_current_time", {"timezone": "Mars/Olympus"}, gives="isError"),
        ],
    ),
    Server(
        "fetch",
        python("mcp2", "mcp-server-fetch", "--allow-private-ips", "--ignore-robots-txt"),
        # It would install npm packages at its first call if it found node.
        env={"PATH": "{dir}/files"},
        modern=True,
        cases=[
            Case("page", "fetch", {"url": "{web}/page.html"}),
            Case("raw", "fetch", {"url": "{web}/page.html", "raw": True, "max_length": 50}),
            Case("not found", "fetch", {"url": "{web}/none"}, gives="isError"),
        ],
    ),
    Server(
        "sqlite",
        python("mcp1", "mcp-server-sqlite", "--db-path", "{dir}/notes.db"),
        cases=[
            Case("read", "read_query", {"query": "select id, title from notes order by id"}),
            Case("write", "write_query", {"query": "insert into notes values (9, 'nine')"}),
            Case("unwrite", "write_query", {"query": "delete from notes where id = 9"}),
            Case("tables", "list_tables", {}),
            Case("bad sql", "read_query", {"query": "select * from nothing"}),
        ],
    ),
    Server(
        "calculator",
        python("mcp1", "mcp-server-calculator"),
        cases=[
            Case("calculate", "calculate", {"expression": "6*7+sqrt(16)"}),
            Case("error", "calculate", {"expression": "import os"}, gives="isError"),
        ],
    ),
    Server(
        "sympy",
        python("mcp1", "mcp-sympy"),
        cases=[Case("simplify", "sympy_simplify", {"expr": "sin(x)**2 + cos(x)**2"})],
    ),
    Server(
        "remote",
        node(f"{OFFICIAL}/server-everything/dist/index.js", "streamableHttp"),
        remote=True,
        cases=[
            Case("sum", "get-sum", {"a": 2, "b": 40}),
            Case("image", "get-tiny-image", {}, gives="image"),
            Case("structured", "get-structured-content", {"location": "Chicago"}, gives="structured"),
            Case("tool error", "get-resource-reference", {"resourceType": "Text", "resourceId": 0.5}, gives="isError"),
            Case("long text", "echo", {"message": "0123456789abcdef" * 16384}),
            Case("progress", "trigger-long-running-operation", {"duration": 0.4, "steps": 8}, progress=True),
        ],
    ),
]
