"""Commands at the prompt."""

import re

from chat import CTRL_D, call, check, write
from terminal import expect

TOOL = "mcp__files__write_file"


def messages(shown):
    return int(re.search(r"^messages +(\d+)$", shown, re.MULTILINE)[1])


@check
def help_lists_every_command(home):
    shown = home.chat().say("/help")
    words = "/tools /load /unload /stats /cost /compact /strategy /model /rename /fork /back /clear /quit".split()
    missing = [word for word in words if not re.search(rf"^{word} .*\w", shown, re.MULTILINE)]
    expect(not missing, f"{missing} in {shown}")


@check
def tools_are_listed_found_loaded_and_unloaded(home):
    chat = home.chat()
    listed = chat.say("/tools")
    expect(re.search(r"^mcp:files +\d+ +0$", listed, re.MULTILINE) and "loaded:" not in listed, listed)
    found = chat.say("/tools write a file")
    expect(re.search(rf"^{TOOL} +[A-Z]", found, re.MULTILINE), found)
    expect(f"Loaded: {TOOL}" in chat.say("/load files__write_file"), chat.text())
    expect("The model has them already." in chat.say("/load files__write_file"), chat.text())
    listed = chat.say("/tools")
    expect(f"loaded: {TOOL}" in listed and re.search(r"^mcp:files +\d+ +1$", listed, re.MULTILINE), listed)
    expect(re.search(rf"^{TOOL} +loaded +[A-Z]", chat.say("/tools write a file"), re.MULTILINE), chat.text())
    expect(f"Unloaded: {TOOL}" in chat.say("/unload files__write_file"), chat.text())
    expect("error: none of these is loaded" in chat.say("/unload files__write_file"), chat.text())
    expect("loaded:" not in chat.say("/tools"), chat.text())
    expect("error: there is no tool nothing_such" in chat.say("/load nothing_such"), chat.text())


@check
def a_table_fits_the_window(home):
    chat = home.chat(columns=80)
    rows = chat.say("/tools write a file").splitlines()
    expect(all(re.match(r"TOOL$|mcp__\w+  +[A-Z]|/tools", row) for row in rows) and len(rows) > 5, "\n".join(rows))


@check
def stats_count_what_was_said(home):
    chat = home.chat()
    shown = chat.say("/stats")
    expect("model     scripted" in shown and messages(shown) == 0 and "taken     0 requests" in shown, shown)
    chat.say("search a file")
    shown = chat.say("/stats")
    expect(messages(shown) == 4 and "taken     2 requests" in shown and "strategy  dispatch" in shown, shown)
    expect(re.search(r"tools     \d+: 5 loaded, \d+ wait; [\d,]+ tokens a request", shown), shown)


@check
def a_strategy_begins_a_new_conversation_and_holds(home):
    chat = home.chat()
    expect("Strategy auto: settled by the first message." in chat.say("/strategy"), chat.text())
    chat.say("search a file")
    expect("Strategy dispatch, which a conversation keeps" in chat.say("/strategy"), chat.text())
    expect("A new conversation. Strategy inject." in chat.say("/strategy inject"), chat.text())
    shown = chat.say("/stats")
    expect(messages(shown) == 0, shown)
    chat.say("search write a file")
    chat.ask(write("a.txt").replace("files__", "mcp__files__"))
    chat.answer("y")
    expect(home.exists("a.txt") and "strategy  inject" in chat.say("/stats"), chat.text())
    expect("error: a strategy is dispatch, inject, native or auto" in chat.say("/strategy natural"), chat.text())


@check
def what_is_said_in_a_fork_is_not_said_outside(home):
    chat = home.chat()
    expect("error: this is no copy" in chat.say("/back"), chat.text())
    chat.say("search a file")
    chat.say("/fork", after="fork 1 ")
    chat.say("/fork", before="fork 1 ", after="fork 2 ")
    chat.say("search a table", before="fork 2 ")
    expect(messages(chat.say("/stats", before="fork 2 ")) == 8, chat.text())
    chat.say("/back", before="fork 2 ", after="fork 1 ")
    expect(messages(chat.say("/stats", before="fork 1 ")) == 4, chat.text())
    expect("Back, as if nothing" in chat.say("/back", before="fork 1 ", after=""), chat.text())
    expect(messages(chat.say("/stats")) == 4, chat.text())


@check
def clear_forgets_what_was_said_loaded_and_permitted(home):
    chat = home.chat()
    chat.ask(write("a.txt"))
    chat.answer("a")
    chat.say("/fork", after="fork 1 ")
    expect("A new conversation." in chat.say("/clear", before="fork 1 ", after=""), chat.text())
    expect(messages(chat.say("/stats")) == 0 and "loaded:" not in chat.say("/tools"), chat.text())
    chat.ask(write("b.txt"))


@check
def a_command_that_does_not_exist_is_answered_with_the_nearest(home):
    chat = home.chat()
    expect("error: there is no command /laod; did you mean `/load`?" in chat.say("/laod x"), chat.text())
    # A path is none.
    expect("✓ tool_search" in chat.say("/etc/hosts is what?"), chat.text())
    # Whoever typed it has read of it.
    chat.send(CTRL_D)
    chat.ends(0)


@check
def another_model_of_the_same_name_goes_on_with_the_conversation(home):
    chat = home.chat()
    chat.say("search a file")
    expect("From here on scripted answers." in chat.say("/model scripted"), chat.text())
    expect("✓ mcp__files__list_directory" in chat.say(call("files__list_directory", path=".")), chat.text())
    expect(messages(chat.say("/stats")) == 8, chat.text())
