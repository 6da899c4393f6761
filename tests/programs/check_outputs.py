#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads what the tools have written, and complains. usage: check_outputs.py WHAT FILES..., as train_runs.sh does."""
import json
import math
import re
import sys
from html.parser import HTMLParser

STEP_FIELDS = {"step", "loss", "grad_norm", "lr", "step_s", "tokens_per_s"}
SUMMARY_FIELDS = {"weights_hash", "arena_bytes", "planned_bytes", "lower_bound_bytes", "peak_rss_bytes",
                  "allocator_calls_per_step", "tokens_per_s", "step_s_median"}


def read_log(path):
    lines = [json.loads(line) for line in open(path)]
    steps = [line for line in lines if "step" in line]
    return steps, [line["validation"] for line in lines if "validation" in line], lines[-1].get("summary")


def check_log(path, step_count=None):
    steps, _, summary = read_log(path)
    assert steps and summary, "steps and a summary are wanted"
    assert step_count is None or len(steps) == int(step_count), f"{len(steps)} steps"
    assert [step["step"] for step in steps] == list(range(1, len(steps) + 1)), "steps are not numbered from 1"
    for step in steps:
        assert STEP_FIELDS <= step.keys(), f"missing: {STEP_FIELDS - step.keys()}"
        assert all(math.isfinite(step[field]) for field in STEP_FIELDS), step
    assert SUMMARY_FIELDS <= summary.keys(), f"missing: {SUMMARY_FIELDS - summary.keys()}"
    assert re.fullmatch("[0-9a-f]{16}", summary["weights_hash"]), summary["weights_hash"]
    plan = json.loads(open(path).readline())["plan"]
    assert plan["rows"] and plan["arena_bytes"] == summary["planned_bytes"], "the first line is not the run's plan"
    assert summary["arena_bytes"] == summary["planned_bytes"] >= summary["lower_bound_bytes"] > 0, summary
    assert summary["peak_rss_bytes"] > summary["arena_bytes"], summary
    assert summary["allocator_calls_per_step"] == 0, summary


def check_same_losses(one, other):
    for kind in 0, 1:
        a, b = read_log(one)[kind], read_log(other)[kind]
        assert len(a) == len(b) > 0, f"{len(a)} and {len(b)} losses"
        for x, y in zip(a, b):
            assert abs(x["loss"] - y["loss"]) <= 1e-5 * abs(x["loss"]), (x, y)


def check_same_weights(one, other):
    a, b = read_log(one), read_log(other)
    assert a[2]["weights_hash"] == b[2]["weights_hash"], "other weights"
    assert [x["loss"] for x in a[0]] == [x["loss"] for x in b[0]], "other losses"


def check_trace(path, rank_count):
    events = json.load(open(path))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert {event["pid"] for event in slices} == set(range(int(rank_count))), "a rank is missing"
    for rank in range(int(rank_count)):
        assert {event["tid"] for event in slices if event["pid"] == rank} >= {0, 1}, "a stream is missing"
    assert all(event["dur"] >= 0 for event in slices)


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.pictures, self.outside = 0, []

    def handle_starttag(self, tag, attributes):
        self.pictures += tag == "svg"
        self.outside += [tag] if tag in ("script", "link", "img", "iframe") else []
        self.outside += [value for name, value in attributes if name in ("src", "href") or "url(" in (value or "")]


def check_clocks(path, seconds):
    """Passes of the ranks lie close together. (Of collectives one rank's end may be another's clock.)"""
    events = [event for event in json.load(open(path))["traceEvents"] if event["ph"] == "X" and event["tid"] == 0]
    first = {rank: min(event["ts"] for event in events if event["pid"] == rank and event["name"] != "wait")
             for rank in {event["pid"] for event in events}}
    assert len(first) > 1 and max(first.values()) - min(first.values()) < float(seconds) * 1e6, first


def check_comparison(json_path, html_path, run_count):
    comparison = json.load(open(json_path))
    assert comparison["weights_equal"] is True
    assert set(comparison["modes"]) == {"static", "dynamic:malloc", "dynamic:pool"}
    for name, mode in comparison["modes"].items():
        assert len(mode["runs"]) == int(run_count), name
        assert 0 < mode["step_s_min"] <= mode["step_s_median"] <= mode["step_s_p99"], name
        assert all(len(run["steps_s"]) >= 3 for run in mode["runs"]), name
        assert (mode["allocator_calls_per_step"] == 0) == (name == "static"), name
        assert mode["live_peak_bytes"] > 0 and mode["resident_peak_bytes"] > mode["live_peak_bytes"], name
    static = comparison["modes"]["static"]
    assert static["ratio_to_static"] == 1 and static["copied_bytes_per_step"] == 0
    for run in static["runs"]:
        assert run["delayed_collectives"] > 0 and run["early_collectives"] == 0, run["early_collectives"]
        assert all(delay >= 0 and late >= 0 for _, delay, late in run["start_delays"]), run["start_delays"]
    assert 0 < static["simulated_s"] and static["measured_over_simulated"] > 0.9, static["simulated_s"]
    text = open(html_path, encoding="utf-8").read()
    page = Page()
    page.feed(text)
    assert page.pictures == 3 and not page.outside, (page.pictures, page.outside)
    assert "http" not in text and not re.search(r"\b(nan|inf)\b", text), "an address, or no number, in the page"


def check_learns(path, by):
    steps, _, _ = read_log(path)
    assert steps[-1]["loss"] < steps[0]["loss"] - float(by), (steps[0]["loss"], steps[-1]["loss"])


def check_near_losses(first, second, share):
    """The mean of the last ten losses."""
    a, b = (sum(step["loss"] for step in read_log(path)[0][-10:]) / 10 for path in (first, second))
    assert abs(a - b) <= float(share) * a, (a, b)
    print(a, b)


def check_variants(json_path, html_path, names):
    comparison = json.load(open(json_path))
    modes, wanted = comparison["modes"], names.split(",")
    assert list(modes) == wanted and comparison["weights_equal"] is True, list(modes)
    sent = {name: modes[name]["sent_bytes_per_step"] for name in wanted}
    counts = {name: modes[name]["collectives_per_step"] for name in wanted}
    assert sent["ddp"] < sent["zero2"] < sent["zero3"], sent
    assert counts["one-unit"] < counts["blocks:2"] < counts["zero3"], counts
    peaks = {name: modes[name]["live_peak_bytes"] for name in wanted}
    assert peaks["zero3"] < peaks["zero2"] < peaks["ddp"] and peaks["zero3"] < peaks["one-unit"], peaks
    assert modes["dynamic:malloc"]["allocator_calls_per_step"] > 0 == modes["zero3"]["allocator_calls_per_step"]
    assert modes["ddp"]["reduce_scatter_s"] > 0, "all-reduces are collectives too"
    page = Page()
    page.feed(open(html_path, encoding="utf-8").read())
    assert page.pictures == 3 and not page.outside, (page.pictures, page.outside)


def check_traffic(path, *validated):
    """A step behind a validation gives back what that held: a call or two."""
    figures = [(s["allocator_calls_per_step"], s["io_bytes_per_step"]) for _, _, s in map(read_log, (path,) + validated)]
    assert all(abs(f[0] - figures[0][0]) < 2 and f[1] == figures[0][1] > 0 for f in figures), figures


def check_offload(json_path):
    """Static memory waits for its disk. (The host's memory may always be there in time.) What is told of a run is told of its mode."""
    modes = json.load(open(json_path))["modes"]
    for name, mode in modes.items():
        assert mode["idle_fetch_s"] == mode["runs"][0]["wait_s"]["fetch"], (name, mode["idle_fetch_s"])
    assert modes["static"]["idle_fetch_s"] > 0


def check_muon(path, json_path, html_path):
    """Beside a comparison without it: its matrices are sent too, and each operation of the page has a colour."""
    sent, sent_without = (json.load(open(p))["modes"]["zero3"]["sent_bytes_per_step"] for p in (json_path, path))
    assert sent > 1.1 * sent_without, (sent, sent_without)
    text = open(html_path, encoding="utf-8").read()
    kinds = set(re.findall('class="(k[0-9]+)"', text))
    assert len(kinds) > 8 and all("." + kind + "{" in text for kind in kinds), kinds


if __name__ == "__main__":
    {"log": check_log, "same-losses": check_same_losses, "same-weights": check_same_weights, "trace": check_trace,
     "clocks": check_clocks, "learns": check_learns, "near-losses": check_near_losses, "comparison": check_comparison, "variants": check_variants,
     "traffic": check_traffic, "offload": check_offload, "muon": check_muon}[sys.argv[1]](*sys.argv[2:])
