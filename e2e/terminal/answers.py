"""What is seen of answers and calls."""

import re
import time

from chat import CTRL_D, RUN, call, check
from terminal import expect

# Of a call that went well: its name, its arguments, how long it took.
CALLED = re.compile(r"^✓ (\S+) (\{.*\}) \((\d+ ms|\d+\.\d s)\)$", re.MULTILINE)
STYLE = re.compile(rb"\x1b\[[0-9;]*m")


@check
def the_prompt_appears_under_a_line_that_says_what_is_there(home):
    chat = home.chat()
    first, *rest = chat.text().splitlines()
    expect(re.fullmatch(r"scripted, \d+ tools\. /help lists commands, Ctrl-D leaves\.", first), chat.text())
    expect(rest == ["›"], chat.text())


@check
def an_answer_is_seen_growing(home):
    chat = home.chat()
    chat.paste_here("\n".join(f"search {words}" for words in ["a file", "a note", "a table", "the time", "git"] * 3))
    chat.send("\r")
    chat.prompted()
    first = "tool_search found"
    answer = chat.text()[chat.text().index(first):].removesuffix("›").rstrip()
    seen = {state[state.index(first):].removesuffix("›").rstrip() for state in chat.states if first in state}
    growing = [part for part in seen if len(part) < len(answer)]
    expect(answer.count(first) == 15 and len(growing) >= 4, f"{len(growing)} states before the last one of {answer}")
    expect(all(answer.startswith(part) for part in growing), f"no beginnings of the answer: {growing}")


@check
def markdown_is_seen_as_styles(home):
    chat = home.chat()
    shown = chat.say(call("files__list_directory", path="."))
    expect("files__list_directory answered:" in shown and "│ {" in shown, shown)
    styles = {(cell.bold, cell.fg) for cell in chat.cells("files__list_directory answered:")[:-10]}
    expect(styles == {(True, "cyan")}, f"the name is written as {styles}")
    styles = {(cell.bold, cell.fg) for cell in chat.cells(" answered:")}
    expect(styles == {(False, "default")}, f"the rest is written as {styles}")
    shown = chat.say("read a text file")
    expect("• mcp__files__read_text_file: " in shown, shown)
    expect({cell.fg for cell in chat.cells("• mcp__files__read_text_file:")[2:-1]} == {"cyan"}, "no code in the list")
    expect({cell.fg for cell in chat.cells('call mcp__files__read_text_file {"path":"…"}')} == {"cyan"}, "no block")
    expect("**" not in chat.text() and "- `" not in chat.text(), chat.text())


@check
def a_call_is_shown_with_its_real_name_and_how_long_it_took(home):
    chat = home.chat()
    shown = chat.say(call("files__list_directory", path="."))
    expect(CALLED.findall(shown)[0][:2] == ("mcp__files__list_directory", '{"path":"."}'), shown)
    expect("call_tool" not in shown, f"the envelope is shown: {shown}")
    chat.ask(call(RUN, command="sleep 0.4"))
    began = time.monotonic()
    name, _, took = CALLED.findall(chat.answer("y"))[0]
    most = (time.monotonic() - began) * 1000
    took = float(took.split()[0]) * (1000 if took.endswith(" s") else 1)
    expect(name == "mcp__exec__run_command" and 400 <= took <= most + 50, f"{took} ms, of {most:.0f}")


@check
def a_call_that_takes_long_is_told_of_while_it_does(home):
    chat = home.chat()
    chat.start(home, "while [ ! -e go ]; do sleep 0.05; done")
    told = re.compile(r"^running mcp__exec__run_command: \d+ s$", re.MULTILINE)
    chat.until("it is told of", lambda: told.search(chat.text()))
    (home.folder / "go").touch()
    chat.prompted()
    expect("running mcp" not in chat.text(), f"the line was left behind:\n{chat.text()}")


@check
def what_a_tool_says_can_not_command_the_terminal(home):
    chat = home.chat()
    question = chat.ask(call(RUN, command="printf '\\033[2J\\033]0;mine\\007\\033[7mred'", stdin="\x1b[2Jgone\x07"))
    expect("\ufffd[2Jgone\ufffd" in question, question)
    shown = chat.answer("y")
    expect("\ufffd[2J\ufffd]0;mine\ufffd\ufffd[7mred" in shown, shown)
    harmful = [code for code in (b"\x1b[2J", b"\x1b]0;", b"\x1b[7m") if code in chat.raw]
    expect(not harmful, f"{harmful} reached the terminal")


@check
def no_color_means_no_styles_and_markdown_as_it_was_written(home):
    chat = home.chat(env={"NO_COLOR": "1"})
    shown = chat.say(call("files__list_directory", path="."))
    expect("**`files__list_directory`** answered:\n\n> {" in shown, shown)
    expect(not STYLE.search(chat.raw), f"styles: {STYLE.findall(chat.raw)}")
    # The same check finds styles where there are some.
    styled = home.chat(env={"NO_COLOR": ""})
    styled.say("search a file")
    expect(STYLE.search(styled.raw), "an empty NO_COLOR took the styles away too")


@check
def a_terminal_that_can_do_nothing_will_do(home):
    chat = home.chat(env={"TERM": "dumb"}, waits=False)
    chat.until("the prompt is there", lambda: chat.line() == "›")
    chat.send("search read a file\r")
    chat.shows("tool_search`** found")
    chat.until("the prompt is there", lambda: chat.line() == "›")
    expect(b"\x1b" not in chat.raw, f"escape sequences: {chat.raw!r}")
    chat.send(CTRL_D)
    chat.ends(0)
