"""Typing: resizing, pasting, bytes that are no text, history."""

import stat

from chat import CTRL_D, ENTER, RUN, UP, call, check, write
from terminal import expect

WORDS = " ".join(f"word{number}" for number in range(40))


@check
def a_line_longer_than_the_window_wraps_and_arrives_whole(home):
    chat = home.chat(columns=60)
    line = write("a.txt", WORDS)
    chat.type(line)
    chat.until("all of it is shown", lambda: line in "".join(chat.screen.display))
    chat.send(ENTER)
    chat.until("it asks", lambda: "why not:" in chat.text())
    chat.answer("y")
    expect(home.read("a.txt") == WORDS, "it arrived otherwise")


@check
def a_resize_at_the_prompt_wraps_the_line_anew(home):
    chat = home.chat(columns=100)
    line = write("a.txt", WORDS)
    chat.type(line)
    chat.until("all of it is shown", lambda: line in "".join(chat.screen.display))
    for columns in (50, 140, 70):
        chat.resize(columns)
        chat.until(
            f"the line is wrapped at {columns}",
            lambda: f"› {line}"[:columns] in chat.screen.display and line in "".join(chat.screen.display),
        )
    chat.send(ENTER)
    chat.until("it asks", chat.is_asking)
    chat.answer("y")
    expect(home.read("a.txt") == WORDS, "it arrived otherwise")


@check
def a_resize_during_a_call_holds_for_what_follows(home):
    chat = home.chat(columns=120)
    chat.start(home, "while [ ! -e go ]; do sleep 0.05; done; echo " + WORDS)
    chat.resize(60)
    (home.folder / "go").touch()
    chat.prompted()
    shown = chat.text()
    told = [line for line in shown.splitlines() if line.startswith("✓")]
    expect(len(told) == 1 and len(told[0]) <= 60 and "…" in told[0] and told[0].endswith("s)"), shown)
    # The answer is broken where the window ends.
    expect(max(map(len, chat.screen.display)) <= 60 and "│ Exit status 0." in shown, shown)
    line = "search " + WORDS
    chat.type(line)
    chat.until("what is typed is broken there too", lambda: line in "".join(chat.screen.display))
    expect(chat.line() == f"› {line}"[-((len(line) + 2) % 60):], chat.line())


@check
def a_resize_at_the_question_does_not_answer_it(home):
    chat = home.chat()
    chat.ask(write("a.txt"))
    chat.resize(80)
    chat.send("n")
    chat.until("what is typed is shown", lambda: chat.line().endswith("why not: n"))
    chat.resize(100)
    chat.answer("")
    expect(not home.exists("a.txt") and "✗ mcp__files__write_file" in chat.text(), chat.text())


@check
def the_smallest_window_does(home):
    chat = home.chat(columns=12, lines=4)
    chat.type("search a file and a table")
    chat.resize(1, 1)
    chat.resize(120)
    chat.send(ENTER)
    chat.prompted()
    chat.say("search a file")
    chat.send(CTRL_D)
    chat.ends(0)


@check
def bytes_that_are_no_text_are_left_out_and_it_goes_on(home):
    chat = home.chat()
    for number, data in enumerate([b"caf\xe9 ", b"\xff", b"\xc3(", b"\xf0\x9f\x98", b"\x80\x81\x82\r"], 1):
        chat.send(data + b" ")
        chat.until(
            f"{data} is told of", lambda: chat.text().count("no text in UTF-8") == number and chat.is_prompting()
        )
    chat.paste(b"search \xff\xfe\nfile")
    chat.until("the paste is told of", lambda: chat.text().count("no text in UTF-8") == 6 and chat.is_prompting())
    expect("messages  0" in chat.say("/stats"), f"part of it was sent:\n{chat.text()}")
    expect("tool_search found" in chat.say("search a file"), chat.text())


@check
def bytes_that_are_no_text_answer_no_question(home):
    chat = home.chat()
    chat.ask(write("a.txt"))
    chat.send(b"\xff\xfe")
    chat.until("it asks again", lambda: chat.text().count("why not:") == 2 and chat.is_asking())
    expect(not home.exists("a.txt"), "it ran")
    chat.answer("y")
    expect(home.exists("a.txt"), chat.text())


@check
def letters_of_every_kind_are_typed_and_taken_back(home):
    chat = home.chat()
    chat.send("search naïve 日本語😀".encode()[:-2])
    chat.type("😀".encode()[-2:])
    chat.until("they are shown", lambda: "😀" in chat.line())
    chat.send("\x7f\x7f")
    chat.until("two are taken back", lambda: chat.line().replace(" ", "") == "›searchnaïve日本")
    chat.send(ENTER)
    chat.prompted()
    expect('✓ tool_search {"query":"naïve 日本"}' in chat.text().replace("日 本 ", "日本"), chat.text())


@check
def a_paste_of_several_lines_is_one_message(home):
    chat = home.chat()
    chat.paste_here(call("files__list_directory", path=".") + "\nsearch a file\n" + call(RUN, command="true"))
    expect("✓" not in chat.text(), "it was sent before Enter")
    chat.send(ENTER)
    chat.until("it asks", chat.is_asking)
    shown = chat.answer("n") and chat.text()
    expect("✓ mcp__files__list_directory" in shown and "✓ tool_search" in shown, shown)
    # The message, the calls, their results, the answer.
    expect("messages  4" in chat.say("/stats"), chat.text())


@check
def a_backslash_continues_the_message(home):
    chat = home.chat()
    chat.type("search a file\\")
    chat.send(ENTER)
    chat.until("more is waited for", lambda: chat.line() == "…")
    chat.send("search a table" + ENTER)
    chat.prompted()
    expect(chat.text().count("✓ tool_search") == 2 and "messages  4" in chat.say("/stats"), chat.text())


@check
def what_is_typed_during_a_run_is_the_next_message(home):
    chat = home.chat()
    chat.start(home, "while [ ! -e go ]; do sleep 0.05; done")
    chat.send("search a file\r")
    chat.until("it is shown", lambda: "search a file" in chat.text())
    (home.folder / "go").touch()
    chat.shows('✓ tool_search {"query":"a file"}')
    chat.prompted()


@check
def history_comes_back_also_after_a_restart(home):
    chat = home.chat()
    chat.say("search a file")
    chat.say("search the weather")
    chat.ask(write("a.txt", "line"))
    chat.answer("n")
    for keys, expected in ((UP, write("a.txt", "line")), (UP, "search the weather"), (UP, "search a file")):
        chat.send(keys)
        chat.until(f"`{expected}` comes back", lambda: chat.line() == f"› {expected}")
    chat.send(ENTER)
    chat.prompted()
    expect(chat.text().count('✓ tool_search {"query":"a file"}') == 2, chat.text())
    chat.paste_here("search one\nsearch two")
    chat.send(ENTER)
    chat.prompted()
    chat.send(CTRL_D)
    chat.ends(0)
    chat = home.chat()
    chat.type(UP)
    chat.until("the message of two lines comes back", lambda: chat.text().endswith("› search one\nsearch two"))
    # One key to the first of its lines, one to what was before it.
    chat.send(UP + UP)
    chat.until("the one before comes back", lambda: chat.text().endswith("› search a file"))
    mode = stat.S_IMODE(home.history().stat().st_mode)
    expect(mode & 0o077 == 0, f"others can read it: {mode:o}")


@check
def words_are_completed(home):
    chat = home.chat()
    chat.type("/he\t")
    chat.until("it is completed", lambda: chat.line() == "› /help")
