"""Chats that are kept: killed, gone on with, looked at, deleted."""

import json
import os
import re
import signal

from chat import CTRL_C, CTRL_D, ENTER, RUN, call, check, write
from terminal import Terminal, expect

RESULT = "what came of it is not known"


def kill(chat):
    chat.process.send_signal(signal.SIGKILL)
    chat.ends(-signal.SIGKILL)


def leave(chat):
    chat.send(CTRL_D)
    chat.ends(0)


@check
def a_chat_that_is_killed_at_the_prompt_goes_on_as_it_was(home):
    chat = home.chat()
    chat.say("search a file")
    chat.say("search a table")
    before = chat.say("/stats").splitlines()[-7:]
    kill(chat)
    (kept,) = home.sessions()
    expect(kept["messages"] == 8 and kept["in_use_by"] is None, str(kept))

    chat = home.chat("--resume")
    shown = chat.text()
    expect(f"Going on with `search a file` ({kept['id']}): 8 messages" in shown, shown)
    # What was said last, and only that.
    expect("› search a table" in shown and "› search a file" not in shown and "✓ tool_search" in shown, shown)
    expect("is not answered yet" not in shown, shown)
    after = chat.say("/stats").splitlines()[-7:]
    same = [line for line in before if line.startswith(("session", "strategy", "tools", "messages"))]
    expect(len(same) == 4 and all(line in after for line in same), "\n".join(before + after))
    expect("✓ mcp__files__list_directory" in chat.say(call("files__list_directory", path=".")), chat.text())
    leave(chat)
    expect(f"Kept as {kept['id']}; `toolcrib chat --resume` goes on with it." in chat.text(), chat.text())
    expect([row["messages"] for row in home.sessions()] == [12], str(home.sessions()))


@check
def a_call_that_was_running_when_the_chat_was_killed_is_not_made_again(home):
    chat = home.chat()
    chat.say("search a file")
    chat.ask(call(RUN, command="echo once >> log; echo $$ > shell; exec sleep 300"))
    chat.send("y" + ENTER)
    command = home.pid("shell")
    kill(chat)
    # Nobody was left to end it.
    os.kill(command, signal.SIGKILL)
    (kept,) = home.sessions()
    expect(kept["messages"] == 6, str(kept))
    shown = home.said_by("sessions", "show", kept["id"])
    expect(f"? {RUN} " in shown and f": it began, and {RESULT}\n" in shown, shown)

    chat = home.chat("--resume", kept["id"])
    shown = chat.text().replace("\n", " ")
    expect(f"warning: a call of `{RUN}` was under way and may have taken effect" in shown, chat.text())
    # The model is told and says something, by itself.
    expect("That is not answered yet, so the model goes on." in chat.text(), chat.text())
    expect(f"{RUN} " in shown and "may or may not have taken effect" in shown, chat.text())
    expect(home.read("log") == "once\n", home.read("log"))
    leave(chat)
    shown = home.said_by("sessions", "show", kept["id"])
    expect(f"✗ {RUN} " in shown and RESULT not in shown, shown)


@check
def a_call_that_was_asked_about_when_the_chat_was_killed_is_asked_about_again(home):
    chat = home.chat()
    chat.ask(write("a.txt"))
    kill(chat)
    chat = home.chat("--resume", waits=False)
    chat.until("it asks", chat.is_asking)
    expect("A call of `files__write_file` was left; it is made now." in chat.text(), chat.text())
    expect(not home.exists("a.txt"), "it was written")
    chat.answer("y")
    expect(home.exists("a.txt"), chat.text())


@check
def going_on_by_itself_can_be_stopped(home):
    chat = home.chat()
    chat.type("search a file")
    chat.send(ENTER)
    chat.shows("✓ tool_search")
    kill(chat)
    chat = home.chat("--resume", waits=False)
    chat.shows("so the model goes on.")
    chat.send(CTRL_C)
    chat.prompted()
    expect("tool_search found" in chat.say("search a table"), chat.text())


@check
def one_chat_at_a_time_has_a_session_and_another_has_a_copy(home):
    first = home.chat()
    first.say("search a file")
    (kept,) = home.sessions()
    expect(kept["in_use_by"] == first.process.pid, str(kept))
    second = home.chat("--resume", waits=False)
    second.ends(1)
    shown = second.text().replace("\n", " ")
    refusal = f"error: session `{kept['id']}` has been in use by process {first.process.pid} for "
    expect(refusal in shown and f"`toolcrib chat --resume {kept['id']} --fork`" in shown, second.text())
    expect(second.is_as_before(), f"other modes: {second.raw[-200:]!r}")

    copy = home.chat("--resume", kept["id"], "--fork")
    expect(f"a copy of {kept['id']}): 4 messages" in copy.text().replace("\n", " "), copy.text())
    copy.say("search a table")
    first.say("search git")
    leave(copy)
    leave(first)
    shown = [home.said_by("sessions", "show", row["id"]) for row in home.sessions()]
    expect(len(shown) == 2 and all("› search a file" in text for text in shown), str(shown))
    expect("› search git" in shown[0] and "› search a table" not in shown[0], shown[0])
    expect("› search a table" in shown[1] and "› search git" not in shown[1], shown[1])


@check
def sessions_are_listed_renamed_and_deleted_after_a_question(home):
    for words in ("search a file", "search a table"):
        chat = home.chat()
        chat.say(words)
        if words == "search a table":
            expect("This is called `the tables` now." in chat.say("/rename the tables"), chat.text())
        leave(chat)
    tables, files = home.sessions()
    listed = home.said_by("sessions").splitlines()
    expect(listed[1].split()[0] == tables["id"] and re.search(r"  4  the tables +scripted  \.$", listed[1]), listed[1])
    expect(home.said_by("sessions", "A FILE").count("\n") == 2, home.said_by("sessions", "A FILE"))
    home.said_by("sessions", "rename", tables["id"], "renamed")
    expect(home.sessions()[0]["title"] == "renamed", str(home.sessions()))

    refused = home.run("sessions", "delete", tables["id"])
    expect(refused.returncode == 2 and "nobody can be asked here" in refused.stderr, refused.stderr)
    for answer, left in (("n", 2), ("y", 1)):
        command = [str(home.binary), "sessions", "delete", tables["id"]]
        asked = Terminal(command, home.env, home.folder)
        home.chats.append(asked)
        asked.shows("Delete 1 session for good? [y/N]")
        expect("renamed" in asked.text() and files["id"] not in asked.text(), asked.text())
        asked.send(answer + ENTER)
        asked.ends(0)
        expect(len(home.sessions()) == left, str(home.sessions()))
    home.said_by("sessions", "delete", files["id"], "--yes")
    expect(home.sessions() == [], str(home.sessions()))


@check
def a_session_that_is_exported_and_imported_goes_on_elsewhere(home):
    chat = home.chat()
    chat.say("search a file")
    chat.say(call("files__list_directory", path="."))
    leave(chat)
    (kept,) = home.sessions()
    exported = home.said_by("sessions", "export", kept["id"])
    expect(json.loads(exported)["id"] == kept["id"], exported[:200])
    shown = home.said_by("sessions", "show", kept["id"]).splitlines()[2:]
    home.said_by("sessions", "delete", kept["id"], "--yes")
    home.said_by("sessions", "import", "-", input=exported)
    (back,) = home.sessions()
    expect(back["id"] == kept["id"] and back["messages"] == 8, str(back))
    expect(home.said_by("sessions", "export", kept["id"]) == exported, "it is not the same")
    expect(home.said_by("sessions", "show", kept["id"]).splitlines()[2:] == shown, "it reads otherwise")
    chat = home.chat("--resume")
    expect("✓ mcp__files__list_directory" in chat.say(call("files__list_directory", path=".")), chat.text())
    leave(chat)
    expect(home.sessions()[0]["messages"] == 12, str(home.sessions()))
