"""`toolcrib review` before a person: what is approved is what they saw."""

import json

from chat import check, stdio_server
from terminal import Terminal, expect

SERVER = """
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\\n' "$id" "$1"; }
while read -r line; do
  id=$(printf %s "$line" | sed 's/.*"id":\\([0-9]*\\).*/\\1/')
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"ops","version":"1"}}' ;;
    *'"tools/list"'*) answer "$(cat tools.json)" ;;
  esac
done
"""


def offer(home, description):
    tools = [{"name": "look", "description": description, "inputSchema": {"type": "object"}}]
    (home.folder / "tools.json").write_text(json.dumps({"tools": tools}))


def change_a_tool(home):
    """A server whose only tool is not what was approved."""
    (home.folder / "server.sh").write_text(SERVER)
    stdio_server(home, "ops", "sh", "server.sh")
    offer(home, "Looks.")
    home.said_by("review")
    offer(home, "Looks closely.")


def review(home, *options):
    terminal = Terminal([str(home.binary), "review", *options], home.env, home.folder)
    home.chats.append(terminal)
    return terminal


def waiting(home):
    return [row["tool"] for row in json.loads(home.said_by("review", "--json"))["servers"][0]["changes"]]


@check
def what_is_approved_is_shown_and_asked_about(home):
    change_a_tool(home)
    first = review(home, "--approve", "look")
    first.shows("Approve this definition, as shown above? [y/N]")
    expect('+  "description": "Looks closely."' in first.text(), first.text())
    first.send("n\r")
    first.ends(0)
    expect("Nothing was approved." in first.text() and waiting(home) == ["look"], first.text())
    # What changes while the question stands is not what was shown.
    second = review(home, "--all")
    second.shows("[y/N]")
    offer(home, "Looks away.")
    expect(waiting(home) == ["look"], "another look at it")
    second.send("y\r")
    second.ends(1)
    expect("ops/look has changed since it was shown, and is not approved" in second.text(), second.text())
    third = review(home, "--all")
    third.shows("[y/N]")
    third.send("y\r")
    third.ends(0)
    expect("ops/look is approved as shown" in third.text() and waiting(home) == [], third.text())


@check
def a_review_is_interrupted_at_its_question(home):
    change_a_tool(home)
    terminal = review(home, "--all")
    terminal.shows("[y/N]")
    terminal.send("\x03")
    terminal.ends(130)
    expect(waiting(home) == ["look"], "nothing is approved")
