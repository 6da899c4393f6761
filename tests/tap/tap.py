# SPDX-License-Identifier: MIT
"""For tests that are Python scripts: lines of TAP."""
import sys

count = failed = 0


def result(good, text, shown=()):
    """What holds; else `shown` comes before it, of each the end."""
    global count, failed
    count += 1
    failed += not good
    for one in () if good else shown:
        print("# " + str(one)[-1500:].replace("\n", "\n# "))
    print(f"{'ok' if good else 'not ok'} {count} - {text}", flush=True)


def skip(text, why):
    result(True, f"{text} # SKIP {why}")


def skip_all(why):
    print(f"1..0 # SKIP {why}")
    sys.exit(0)


def finish():
    """The plan."""
    print(f"1..{count}")
