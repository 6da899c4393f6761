#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Reads what the tools have written, and complains. usage: check_outputs.py WHAT FILES..., as train_runs.sh does."""
import json
import math
import re
import statistics
import sys
from html.parser import HTMLParser

STEP_FIELDS = {"step", "loss", "grad_norm", "lr", "step_s", "tokens_per_s"}
RECENT = 16  # steps that the progress is of
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


def check_report(path, log):
    """What train prints at the end, the summary and the log's steps, of which there are over 64, tell the same numbers."""
    text = open(path, encoding="utf-8").read()
    steps, _, summary = read_log(log)

    def near(a, b, share=0.006, least=0.0051):
        assert abs(float(a) - b) <= share * abs(b) + least, (a, b)

    def found(pattern):
        match = re.search(pattern, text, re.M)
        assert match, pattern
        return [float(word) for word in match.groups()]

    batch, seq, micro_batches, tokens = found(r"^step: (\d+) sequences? x (\d+) tokens a rank, (\d+) micro-batch(?:es)?: (\d+) tokens$")
    assert tokens == batch * seq * micro_batches * found(r" (\d+) ranks? x ")[0]
    for step in steps + [{"step_s": summary["step_s_median"], **summary}]:
        near(step["tokens_per_s"] * step["step_s"], tokens)
    times, losses = [step["step_s"] for step in steps[1:]], [step["loss"] for step in steps]
    near(summary["step_s_median"], statistics.median(times), 1e-4)
    step_ms, median_ms, per_s = found(r"^  step +([\d.]+) ms, median ([\d.]+) ms: (\d+) tokens/s")
    near(step_ms, 1e3 * statistics.mean(times), 0.5)  # the mean over ranks, of which the log is the first
    near(median_ms, 1e3 * summary["step_s_median"])
    near(per_s, summary["tokens_per_s"], 0.001, 0.51)
    share = re.search(r"tokens/s, (\d+) % of the products' peak$", text, re.M)  # none where the peak was measured on a busy machine
    assert abs(float(share.group(1) if share else 0) - 100 * summary["peak_share"]) <= 0.51, summary["peak_share"]
    near(summary["peak_flops_per_s"] * 1e-9, found(r"^peak of the step.*: (\d+) GFLOP/s")[0], 0.01)
    parts = re.findall(r"^  (?:compute|waiting for .*?) +([\d.]+) ms +([\d.]+) %", text, re.M)
    near(sum(float(ms) for ms, _ in parts), step_ms)
    near(sum(float(percent) for _, percent in parts), 100)
    assert all(abs(float(ms) / step_ms * 100 - float(percent)) < 0.2 for ms, percent in parts), parts
    for name, key in ("all-gather", "all_gather"), ("reduce-scatter", "reduce_scatter"), ("the norm", "norm"):
        near(found(rf"^  waiting for {name} +([\d.]+) ms")[0], 1e3 * summary["wait_s"][key])
    first, last = found(r"^loss: ([\d.]+) in the first step, ([\d.]+) at the end \(mean of 10 steps\)$")
    near(first, losses[0], 1e-4)
    near(last, statistics.mean(losses[-10:]), 1e-4)
    marks = re.findall(r"^ +(\d+\.\d+) \|( *\**.*)$", text, re.M)
    count = len(losses)
    means = [statistics.mean(losses[c * count // 64:(c + 1) * count // 64]) for c in range(64)]
    near(marks[0][0], max(means), 1e-3)
    near(marks[-1][0], min(means), 1e-3)
    for column, loss in enumerate(means):
        level, = [float(value) for value, row in marks if row[1 + column:2 + column] == "*"]
        assert abs(level - loss) <= (max(means) - min(means)) / 22 + 1e-3, (column, level, loss)
    near(found(r"^           step 1 +(\d+)$")[0], len(steps), 0)
    planned, bound = found(r"^  planned +([\d.]+) MiB  \(lower bound ([\d.]+)\)$")
    near(planned, summary["planned_bytes"] / 2**20)
    near(bound, summary["lower_bound_bytes"] / 2**20)
    at_peak = re.findall(r"^  [a-z ]+? +([\d.]+) MiB  (#*)$", text, re.M)
    near(sum(float(mib) for mib, _ in at_peak), bound)
    assert len(at_peak) > 4 and all(abs(40 * float(mib) / bound - len(bar)) <= 0.51 for mib, bar in at_peak), at_peak
    near(found(r"^  process, all ranks +([\d.]+) MiB resident at most in training$")[0], summary["peak_rss_bytes"] / 2**20)
    shown = progress_lines(text)
    assert [line[:2] for line in (shown[0], shown[-1])] == [(1, count), (count, count)] and shown[-1][4] == 0, shown
    assert len(shown) <= 10 + sum(step["step_s"] for step in steps) / 5, "a line each five seconds"
    for (_, _, loss, per_s, left), recent in (shown[0], steps[:1]), (shown[-1], steps[-RECENT:]):
        step_s = statistics.mean(step["step_s"] for step in recent)
        near(loss, recent[-1]["loss"], 1e-4)
        near(per_s, tokens / step_s, 0.001, 0.51)
        assert abs(left - step_s * (count - recent[-1]["step"])) <= 0.51, (left, step_s)


def progress_lines(text):
    """(step, steps, loss, tokens/s, seconds left) of each."""
    lines = re.findall(r"^step +(\d+) / (\d+)   loss +([\d.]+) +(\d+) tokens/s.*   left (?:(\d+):)?(\d+):(\d\d)$", text, re.M)
    assert all(minutes < "6" or not hours for *_, hours, minutes, _ in lines), lines
    return [(int(step), int(steps), float(loss), int(per_s), 3600 * int(hours or 0) + 60 * int(minutes) + int(seconds))
            for step, steps, loss, per_s, hours, minutes, seconds in lines]


def check_left(path):
    """Of a run of a million steps: hours."""
    text = open(path, encoding="utf-8").read()
    _, steps, _, per_s, left = progress_lines(text)[0]
    tokens = int(re.search(r"^step: .*: (\d+) tokens$", text, re.M).group(1))
    assert left > 3600 and tokens / (per_s + 0.51) * (steps - 1) - 1 < left < tokens / (per_s - 0.51) * (steps - 1) + 1, (left, per_s)


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


OF_RUNS = {"allocator_calls_per_step": "allocator_calls", "allocated_bytes_per_step": "allocated_bytes",
           "page_faults_per_step": "page_faults", "copied_bytes_per_step": "copied_bytes", "cast_bytes_per_step": "cast_bytes",
           "collectives_per_step": "collectives", "sent_bytes_per_step": "sent_bytes", "offload_bytes": "offload_bytes",
           "offload_moved_bytes_per_step": "offload_moved_bytes", "live_peak_bytes": "live_peak_bytes",
           "reserved_peak_bytes": "reserved_peak_bytes", "resident_peak_bytes": "resident_peak_bytes",
           "pass_slowdown": "pass_slowdown", "timeline_steps": "timeline_steps", "simulated_s": "simulated_s",
           "simulated_medians_s": "simulated_medians_s"}
OF_KINDS = {"idle_": "wait_s", "": "collective_s", "exposed_": "exposed_s", "start_delay_": "start_delay_s", "late_": "late_ranks_s"}
ROWS = {"step, median": ("step_s_median", 1e3), "step, minimum": ("step_s_min", 1e3), "step, 99th percentile": ("step_s_p99", 1e3),
        "tokens/s": ("tokens_per_s", 1), "collectives a step and rank": ("collectives_per_step", 1),
        "bytes sent a step and rank": ("sent_bytes_per_step", 2**-20), "allocator calls a step and rank": ("allocator_calls_per_step", 1),
        "bytes asked a step and rank": ("allocated_bytes_per_step", 2**-20), "page faults a step, all ranks": ("page_faults_per_step", 1),
        "live peak of a rank": ("live_peak_bytes", 2**-20), "reserved peak of a rank": ("reserved_peak_bytes", 2**-20),
        "resident peak of the process": ("resident_peak_bytes", 2**-20), "bytes copied a step and rank": ("copied_bytes_per_step", 2**-20),
        "compute idle for all-gather": ("idle_all_gather_s", 1e3), "compute idle for reduce-scatter": ("idle_reduce_scatter_s", 1e3),
        "compute idle for the norm": ("idle_norm_s", 1e3), "all-gather, exposed of all": ("exposed_all_gather_s", 1e3),
        "reduce-scatter, exposed of all": ("exposed_reduce_scatter_s", 1e3),
        "start delay of an all-gather": ("start_delay_all_gather_s", 1e6),
        "start delay of a reduce-scatter": ("start_delay_reduce_scatter_s", 1e6),
        "blocks beside a collective / alone": ("pass_slowdown", 1), "the plan's list with measured times": ("simulated_s", 1e3),
        "... one rank, medians of the times": ("simulated_medians_s", 1e3), "measured / simulated": ("measured_over_simulated", 1)}


def check_medians(modes, table):
    """What is told of a mode are medians over its runs; the printed table has the same numbers."""
    middle, same = statistics.median, lambda a, b: math.isclose(a, b, rel_tol=1e-9)
    by_round = {name: [middle(run["steps_s"]) for run in mode["runs"]] for name, mode in modes.items()}
    for name, mode in modes.items():
        runs = mode["runs"]
        for key, of_run in OF_RUNS.items():
            assert same(mode.get(key, 0), middle(run.get(of_run, 0) for run in runs)), (name, key)
        for kind in "all_gather", "reduce_scatter":
            for prefix, of_run in OF_KINDS.items():
                assert same(mode[f"{prefix}{kind}_s"], middle(run.get(of_run, {kind: 0})[kind] for run in runs)), (name, prefix, kind)
        assert same(mode["idle_norm_s"], middle(run["wait_s"]["norm"] for run in runs)), name
        steps = sorted(step for run in runs for step in run["steps_s"])
        told = mode["step_s_min"], mode["step_s_median"], mode["step_s_p99"]
        assert all(map(same, told, (steps[0], middle(steps), steps[math.ceil(0.99 * len(steps)) - 1]))), (name, told)
        assert same(mode["tokens_per_s"], runs[0]["tokens_per_step"] / mode["step_s_median"]), name
        ratios = [own / first for own, first in zip(by_round[name], by_round["static"])]
        told = mode["ratio_to_static"], *mode["ratio_spread"]
        assert all(map(same, told, (middle(ratios), min(ratios), max(ratios)))), (name, told)
        for run in runs:
            assert run["timeline_steps"] == len(run["steps_s"]) - 1 and run["live_peak_bytes"] <= run["reserved_peak_bytes"], name
            assert sum(run["categories"].values()) == run["lower_bound_bytes"], name
            assert (run["live_peak_bytes"] == run["arena_bytes"] == run["planned_bytes"]) == (name == "static"), name
            assert all(0 < run["exposed_s"][kind] <= run["collective_s"][kind] for kind in ("all_gather", "reduce_scatter", "norm")), name
    lines = {line[:40].rstrip(): [line[at:at + 25] for at in range(40, 40 + 25 * len(modes), 25)] for line in table.split("\n")}
    check_rows(modes, lines)
    assert all(row in lines for row in ROWS)


def check_rows(modes, rows):
    """A row is its name and a cell for each mode, which begins with a number or is -."""
    assert [cell.strip() for cell in rows["weights_hash"]] == [mode["weights_hash"] for mode in modes.values()]
    for row, (key, scale) in ROWS.items():
        for cell, (name, mode) in zip(rows.get(row, ()), modes.items()):
            number, wanted = re.match(r" *(-|[\d.]+)", cell).group(1), mode.get(key, 0) * scale
            assert abs((0 if number == "-" else float(number)) - wanted) <= 0.0051 * max(1, abs(wanted)) + 0.05, (row, name, cell, wanted)


def check_pictures(modes, text):
    """The page has the table's numbers, a line of steps for each run, and the spans of each mode's last run."""
    rows = {row: re.findall("<td>(.*?)</td>", cells) for row, cells in re.findall("<tr><td>(.*?)</td>(.*?)</tr>", text)}
    check_rows(modes, {row: cells for row, cells in rows.items() if len(cells) == len(modes)})
    assert len(rows) > len(ROWS), rows.keys()
    most = 1.05 * max(mode["step_s_p99"] for mode in modes.values())
    lines = [[point.split(",") for point in points.split()] for points in re.findall('<polyline class="[a-z0-9]+" points="(.*?)"', text)]
    runs = [run for mode in modes.values() for run in mode["runs"]]
    assert len(lines) == len(runs)
    for line, run in zip(lines, runs):
        assert len(line) == len(run["steps_s"]) and float(line[0][0]) < float(line[-1][0])
        assert all(abs((250 - float(y)) / 240 * most - step) < most / 2000 for (_, y), step in zip(line, run["steps_s"])), line
    titles = re.findall(r'<rect class="k\d+" x="([\d.]+)" y="\d+" width="([\d.]+)" height="\d+"><title>(.*?), ([\d.]+) ms<', text)
    spans = [span for mode in modes.values() for rank in mode["runs"][-1]["timeline"] for span in rank if span[4] > span[3]]
    assert [(name, f"{(end - start) * 1e3:.3f}") for _, _, name, start, end, _ in spans] == [title[2:] for title in titles]
    left, right, last = float(lines[0][0][0]), float(lines[0][-1][0]), max(end for *_, end, _ in spans)
    for (x, wide, *_), (_, _, name, start, end, _) in zip(titles, spans):
        drawn, length = (float(x) - left) / (right - left) * last, float(wide) / (right - left) * last
        assert max(abs(drawn - start), abs(length - (end - start))) < last / 10000, (name, drawn, start, length)
    for mode in modes.values():
        live = f"live at most {mode['live_peak_bytes'] / 2**20:.1f} MiB, reserved {mode['reserved_peak_bytes'] / 2**20:.1f} MiB"
        assert live in text, live
    for name, count in modes["static"]["runs"][0]["categories"].items():
        assert text.count(f"<title>{name}, {count / 2**20:.2f} MiB</title>") == 1, name
    assert len(re.findall('<path class="f[0-9]"', text)) == sum(name.startswith("dynamic") for name in modes)


def check_comparison(json_path, html_path, run_count, table):
    comparison = json.load(open(json_path))
    check_medians(comparison["modes"], open(table, encoding="utf-8").read())
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
        assert len(run["start_delays"]) == run["collectives"], run["start_delays"]
        assert run["delayed_collectives"] % (2 * (run["collectives"] - 1)) == 0, "of two ranks each but the norms'"
        assert all(delay >= 0 and late >= 0 for _, delay, late in run["start_delays"]), run["start_delays"]
    assert 0 < static["simulated_s"] and static["measured_over_simulated"] > 0.9, static["simulated_s"]
    text = open(html_path, encoding="utf-8").read()
    check_pictures(comparison["modes"], text)
    page = Page()
    page.feed(text)
    assert page.pictures == 3 and not page.outside, (page.pictures, page.outside)
    assert "http" not in text and not re.search(r"\b(nan|inf)\b", text), "an address, or no number, in the page"


def check_sent(json_path):
    """Four ranks: a ring sends 3/4 of what is gathered or scattered, in groups of two 1/2, then the shards are added up."""
    comparison = json.load(open(json_path))
    zero3, ddp, hsdp = (comparison["modes"][name]["sent_bytes_per_step"] for name in ("zero3", "ddp", "hsdp:2"))
    assert abs(hsdp - (zero3 * 2 / 3 + ddp / 3)) < 0.02 * hsdp and 0 < ddp < zero3, (zero3, ddp, hsdp)


def check_counts(path, log, json_path, mode):
    """A run of train counts as the same run of headtohead, and prints it."""
    summary, figures = read_log(log)[2], json.load(open(json_path))["modes"][mode]
    traffic = summary["traffic"]
    assert summary["allocator_calls_per_step"] == figures["allocator_calls_per_step"], summary
    for key in "live_peak_bytes", "allocated_bytes_per_step", "copied_bytes_per_step", "cast_bytes_per_step", "collectives_per_step":
        assert traffic[key] == figures[key], (key, traffic[key], figures[key])
    assert abs(traffic["collective_bytes_per_step"] / 2 - figures["sent_bytes_per_step"]) < 100, traffic  # but for the norm's
    if mode != "static":
        assert traffic["reserved_peak_bytes"] == figures["reserved_peak_bytes"] and traffic["copied_bytes_per_step"] > 0, traffic
        assert traffic["allocated_bytes_per_step"] > 0 and traffic["cast_bytes_per_step"] > 0, traffic
        taken = re.search(r"^  taken +([\d.]+) MiB live, ([\d.]+) MiB reserved, at most$", open(path, encoding="utf-8").read(), re.M)
        for mib, key in zip(taken.groups(), ("live_peak_bytes", "reserved_peak_bytes")):
            assert abs(float(mib) - traffic[key] / 2**20) < 0.0051, (mib, traffic)


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
    {"log": check_log, "report": check_report, "left": check_left, "same-losses": check_same_losses,
     "same-weights": check_same_weights, "trace": check_trace,
     "clocks": check_clocks, "learns": check_learns, "near-losses": check_near_losses, "comparison": check_comparison, "variants": check_variants,
     "traffic": check_traffic, "counts": check_counts, "sent": check_sent, "offload": check_offload,
     "muon": check_muon}[sys.argv[1]](*sys.argv[2:])
