"""Ctrl-C, Ctrl-D, and being ended from outside."""

import os
import signal

from chat import CTRL_C, CTRL_D, call, check, stdio_server
from terminal import eventually, expect, runs

# Takes no notice of being asked to end, and has a process of its own.
STUBBORN = "trap '' INT TERM; sleep 300 & echo $! > child; wait"


def ended(*pids):
    for pid in pids:
        eventually(f"process {pid} is gone", lambda: not runs(pid), 10)


@check
def ctrl_c_during_a_call_cancels_it_and_the_conversation_goes_on(home):
    chat = home.chat()
    shell, child = chat.start(home, STUBBORN), home.pid("child")
    chat.send(CTRL_C)
    took = chat.prompted()
    shown = chat.text()
    expect(took < 2, f"the prompt came after {took:.1f} s")
    expect("✗ mcp__exec__run_command" in shown and "\nCancelled.\n" in shown, shown)
    ended(shell, child)
    shown = chat.say(call("files__list_directory", path="."))
    expect('{"name":"shell",' in shown.replace("\n", ""), shown)
    # The question, the call, its result; then the same and an answer.
    expect("messages  7" in chat.say("/stats"), chat.text())


@check
def ctrl_c_ends_an_answer_that_is_being_written(home):
    chat = home.chat()
    chat.paste_here("\n".join(f"search {words}" for words in ["a file", "a note", "a table", "time", "git"] * 3))
    chat.send("\r")
    chat.shows("tool_search found")
    chat.send(CTRL_C)
    took = chat.prompted()
    answer = chat.text()
    expect(took < 2 and "Cancelled." in answer, f"{took:.1f} s:\n{answer}")
    expect(answer.count("tool_search found") < 15, "it was written to its end")
    expect("tool_search found" in chat.say("search a file"), chat.text())


@check
def ctrl_c_leaves_servers_alone(home):
    stdio_server(home, "mine", home.binary, "builtin", "files")
    chat = home.chat()
    before = chat.say("/tools")
    chat.start(home, "sleep 300")
    chat.send(CTRL_C)
    chat.prompted()
    expect(chat.say("/tools").splitlines()[:3] == before.splitlines()[:3], chat.text())
    expect("✓ mcp__mine__list_directory" in chat.say(call("mine__list_directory", path=".")), chat.text())


@check
def ctrl_c_at_the_prompt_takes_the_line_away_and_hints(home):
    chat = home.chat()
    chat.type("nothing of this")
    chat.send(CTRL_C)
    chat.prompted()
    expect(chat.text().endswith("› nothing of this\nCtrl-D leaves.\n›"), chat.text())
    expect("messages  0" in chat.say("/stats"), chat.text())


@check
def ctrl_d_leaves_and_the_terminal_is_as_before(home):
    chat = home.chat()
    expect(not chat.is_as_before(), "the terminal is not edited in")
    chat.say("search a file")
    chat.send(CTRL_D)
    chat.ends(0)
    expect(chat.is_as_before(), f"other modes: {chat.raw[-200:]!r}")


@check
def quit_leaves_and_the_terminal_is_as_before(home):
    chat = home.chat()
    chat.type("/quit")
    chat.send("\r")
    chat.ends(0)
    expect(chat.is_as_before(), f"other modes: {chat.raw[-200:]!r}")


@check
def being_ended_at_the_prompt_leaves_the_terminal_as_before(home):
    chat = home.chat()
    chat.type("half a mess")
    chat.process.send_signal(signal.SIGTERM)
    chat.ends(0)
    expect(chat.is_as_before(), f"other modes: {chat.raw[-200:]!r}")


@check
def being_ended_during_a_call_ends_the_call(home):
    chat = home.chat()
    shell, child = chat.start(home, STUBBORN), home.pid("child")
    chat.process.send_signal(signal.SIGTERM)
    chat.ends(0)
    ended(shell, child)
    expect(chat.is_as_before(), f"other modes: {chat.raw[-200:]!r}")


@check
def a_window_that_is_closed_ends_the_call(home):
    chat = home.chat()
    shell, child = chat.start(home, STUBBORN), home.pid("child")
    chat.hang_up()
    eventually("it ends", lambda: chat.process.poll() is not None)
    ended(shell, child)


@check
def a_window_that_is_closed_at_the_prompt_ends_the_servers(home):
    script = 'echo $$ > server; exec "$0" builtin files'
    stdio_server(home, "mine", "sh", "-c", script, home.binary)
    chat = home.chat()
    server = home.pid("server")
    chat.hang_up()
    eventually("it ends", lambda: chat.process.poll() is not None)
    ended(server)


@check
def ctrl_c_while_servers_start_leaves_and_ends_them(home):
    stdio_server(home, "slow", "sh", "-c", "echo $$ > server; sleep 300")
    chat = home.chat(waits=False)
    server = home.pid("server")
    chat.shows("starting slow")
    chat.send(CTRL_C)
    chat.ends(130)
    ended(server)
    expect(chat.is_as_before() and not os.path.exists(home.history()), chat.text())
