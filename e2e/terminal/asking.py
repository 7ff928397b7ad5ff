"""Questions whether a tool may run, and what becomes of the answers."""

from chat import CTRL_C, CTRL_D, RUN, call, check, write
from terminal import expect

DENIED = "✗ mcp__files__write_file"


@check
def a_tool_that_writes_is_asked_about_with_its_arguments(home):
    question = home.chat().ask(write("a.txt", "one\ntwo"))
    expect("mcp__files__write_file wants to run; it may change or delete things." in question, question)
    expect("  path: a.txt\n  content: one\n    two\n" in question, question)
    expect(not home.exists("a.txt"), "it was written before the answer")


@check
def y_lets_it_run_once(home):
    chat = home.chat()
    chat.ask(write("a.txt", "hello"))
    shown = chat.answer("y")
    expect("✓ mcp__files__write_file" in shown and home.read("a.txt") == "hello", shown)
    chat.ask(write("b.txt"))
    expect(not home.exists("b.txt"), "the second call ran unasked")


@check
def a_lets_it_run_from_then_on_and_nothing_else(home):
    chat = home.chat()
    chat.ask(write("a.txt"))
    chat.answer("a")
    shown = chat.say(write("b.txt"))
    expect(home.exists("a.txt") and home.exists("b.txt") and "wants to run" not in shown, shown)
    chat.ask(call(RUN, command="touch c.txt"))
    chat.answer("n")
    expect(not home.exists("c.txt"), "a yes for one tool was one for another")


@check
def n_does_not_let_it_run(home):
    chat = home.chat()
    chat.ask(write("a.txt"))
    shown = chat.answer("n")
    expect(DENIED in shown and "files__write_file failed:" in shown and not home.exists("a.txt"), shown)
    chat.ask(write("a.txt"))
    chat.answer("")
    expect(not home.exists("a.txt"), "Enter alone is not yes")
    chat.ask(write("a.txt"))
    chat.send(CTRL_D)
    chat.prompted()
    expect(not home.exists("a.txt"), "Ctrl-D is not yes")


@check
def v_does_not_let_it_run_from_then_on(home):
    chat = home.chat()
    chat.ask(write("a.txt"))
    chat.answer("v")
    shown = chat.say(write("b.txt"))
    expect(DENIED in shown and "wants to run" not in shown, shown)
    expect(not home.exists("a.txt") and not home.exists("b.txt"), "it ran")


@check
def a_sentence_is_no_and_the_model_is_told(home):
    chat = home.chat()
    chat.ask(write("a.txt"))
    shown = chat.answer("yes, if you take notes.txt")
    # What stands behind the bar is what the model read.
    told = shown[shown.index("files__write_file failed:"):]
    expect("The user said no: yes, if you take notes.txt" in told and not home.exists("a.txt"), shown)


@check
def what_was_typed_before_the_question_is_no_answer(home):
    chat = home.chat()
    # Without a pause, as by somebody who doesn't look.
    chat.send(write("a.txt") + "\ry\ra\r")
    chat.until("it asks", chat.is_asking)
    chat.answer("n")
    # While the model still writes, which takes it a while: there are many calls.
    chat.paste_here("search a file\n" * 15 + write("a.txt"))
    chat.send("\r")
    chat.until("the model is asked", lambda: chat.raw.endswith(b"\x1b[?2004l\r\n"))
    chat.send("y\ra\r")
    chat.until("it asks", chat.is_asking)
    expect(chat.text().count("wants to run") == 2 and not home.exists("a.txt"), f"it ran unasked:\n{chat.text()}")
    chat.answer("n")
    expect(not home.exists("a.txt"), "it ran")


@check
def several_calls_are_asked_about_one_by_one(home):
    chat = home.chat()
    chat.paste_here(f"{write('a.txt')}\n{write('b.txt')}")
    chat.send("\r")
    chat.until("it asks", chat.is_asking)
    chat.send("n\r")
    chat.until("it asks again", lambda: chat.text().count("wants to run") == 2 and chat.is_asking())
    shown = chat.answer("y")
    expect(home.exists("b.txt") and not home.exists("a.txt"), shown)


@check
def ctrl_c_at_the_question_ends_the_run(home):
    chat = home.chat()
    chat.ask(write("a.txt"))
    chat.send(CTRL_C)
    took = chat.prompted()
    expect(took < 2 and not home.exists("a.txt") and "Cancelled." in chat.text(), f"{took:.1f} s\n{chat.text()}")
    chat.ask(write("a.txt"))
    chat.answer("y")
    expect(home.exists("a.txt"), "the conversation does not go on")


@check
def yes_asks_nothing(home):
    shown = home.chat("--yes").say(write("a.txt"))
    expect(home.exists("a.txt") and "wants to run" not in shown, shown)
