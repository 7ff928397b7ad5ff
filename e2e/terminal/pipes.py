"""A chat of which one end or the other is no terminal."""

import os
import subprocess
import time

from chat import CTRL_D, call, check, write
from terminal import expect


def shown(done):
    return f"status {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}"


@check
def every_line_from_a_pipe_is_a_message(home):
    # The last one without an end.
    done = home.piped(b"search a file\r\n\n" + call("files__list_directory", path=".").encode() + b"\n/stats")
    out, told = done.stdout.decode(), done.stderr.decode()
    expect(done.returncode == 0, shown(done))
    expect(out.startswith("**`tool_search`** found 5 tools") and "**`files__list_directory`** answered:" in out, out)
    expect("messages  8\n" in out and "taken     4 requests" in out, out)
    expect("✓ tool_search" in told and "✓ mcp__files__list_directory" in told, told)
    expect("✓" not in out and "›" not in out + told, shown(done))
    expect(b"\x1b" not in done.stdout + done.stderr, f"escape sequences: {done.stdout + done.stderr!r}")


@check
def a_pipe_may_carry_anything(home):
    done = home.piped(b"search \xff\xfe file\n\x00\x1b[2J\n" + b"caf\xe9\nsearch " + b"x" * 300_000 + b"\n/stats\n")
    expect(done.returncode == 0 and b"messages  16\n" in done.stdout, shown(done)[:3000])
    expect("\ufffd\ufffd file".encode() in done.stderr, shown(done)[:3000])
    expect(b"\x1b" not in done.stderr, f"escape sequences: {done.stderr!r}")


@check
def a_pipe_without_anything_is_no_error(home):
    done = home.piped(b"")
    expect((done.returncode, done.stdout, done.stderr) == (0, b"", b""), shown(done))


@check
def what_goes_wrong_in_a_pipe_is_seen_in_the_status(home):
    done = home.piped(b"/laod x\nsearch a file\n")
    expect(done.returncode == 1 and b"error: there is no command /laod" in done.stderr, shown(done))
    expect(b"found 5 tools" in done.stdout, "it did not go on: " + shown(done))


@check
def nobody_to_ask_means_no(home):
    done = home.piped(f"{write('a.txt')}\n{write('b.txt')}\n".encode())
    told = done.stderr.decode()
    expect(not home.exists("a.txt") and not home.exists("b.txt"), "it was written")
    expect(told.count("nobody can be asked here; --yes gives it") == 1, told)
    expect(done.stdout.decode().count("nobody can be asked here") == 2, "the model was not told: " + shown(done))
    done = home.piped(write("a.txt").encode(), "--yes")
    expect(home.exists("a.txt") and done.returncode == 0, shown(done))


@check
def an_answer_into_a_pipe_is_as_it_was_written_and_questions_are_still_asked(home):
    reader, writer = os.pipe()
    chat = home.chat(waits=False, stdout=writer)
    os.close(writer)
    chat.until("the prompt is there", lambda: chat.line() == "›")
    chat.send(write("a.txt") + "\r")
    chat.until("it asks", chat.is_asking)
    chat.send("y\r")
    chat.until("the prompt is there", lambda: chat.line() == "›")
    chat.send(CTRL_D)
    chat.ends(0)
    with os.fdopen(reader) as answers:
        answer = answers.read()
    expect(answer.startswith("**`files__write_file`** answered:\n\n> {") and "\x1b" not in answer, answer)
    expect(home.exists("a.txt") and "**" not in chat.text(), chat.text())


@check
def the_first_answer_does_not_wait_for_the_second_message(home):
    process = subprocess.Popen(
        home.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=home.env,
        cwd=home.folder, start_new_session=True,
    )
    with process:
        process.stdin.write(b"search a file\n")
        process.stdin.flush()
        began = time.monotonic()
        first = process.stdout.read1()
        expect(b"tool_search" in first and process.poll() is None, f"{first!r} after {time.monotonic() - began:.1f} s")
        process.stdin.close()
        process.stdout.read()
        expect(process.wait() == 0, f"status {process.returncode}")
