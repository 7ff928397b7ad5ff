"""Drives `toolcrib chat` as a person does, and looks at what that person would see."""

import argparse
import multiprocessing
import signal
import sys
import time
from pathlib import Path

from chat import CHECKS, Home
from terminal import Failed
import answers, asking, commands, editing, pipes, reviewing, sessions, stopping  # noqa: E401, F401 they say what is checked

ROOT = Path(__file__).resolve().parents[2]


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=Path, default=ROOT / "target/debug/toolcrib", help="the toolcrib binary")
    parser.add_argument("--only", action="append", metavar="WORDS", help="checks with this in their name")
    parser.add_argument("--list", action="store_true", help="print the names of all checks and end")
    parser.add_argument("--jobs", type=int, default=3, help="checks at once (default 3)")
    return parser.parse_args()


def named(check):
    return check.__name__.replace("_", " ")


def made(task):
    """Makes one check; what is wrong, or nothing, and how long that took to say."""
    number, binary = task
    began = time.monotonic()
    with Home(binary) as home:
        try:
            CHECKS[number](home)
            problem = None
        except Failed as failed:
            problem = str(failed)
        except Exception as error:  # noqa: BLE001 one broken check must not hide the others
            problem = f"{type(error).__name__}: {error}"
    return number, problem, time.monotonic() - began


def main():
    # A program started where hangups are ignored goes on ignoring them, and a window is to be closed here.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    chosen = options()
    wanted = chosen.only or [""]
    numbers = [at for at, check in enumerate(CHECKS) if any(words in named(check) for words in wanted)]
    if chosen.list:
        print("\n".join(named(CHECKS[number]) for number in numbers))
        return 0
    binary = chosen.bin.resolve()
    if not binary.exists():
        sys.exit(f"e2e/terminal: there is no {binary}; build it with `cargo build`, or give --bin PATH")
    began, failures = time.monotonic(), []
    # Processes and not threads: each starts programs in terminals of their own.
    with multiprocessing.get_context("fork").Pool(chosen.jobs) as pool:
        for number, problem, took in pool.imap(made, [(number, binary) for number in numbers]):
            name = named(CHECKS[number])
            print(f"{'FAIL' if problem else 'ok  '}  {name}  ({took:.1f} s)", flush=True)
            if problem:
                failures.append((name, problem))
    for name, problem in failures:
        print(f"\n=== {name}\n{problem}")
    print(f"\n{len(numbers)} checks, {len(failures)} failed, {time.monotonic() - began:.0f} s")
    return 1 if failures or not numbers else 0


sys.exit(main())
