#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: the benchmark runs, and what it writes can be read by programs; figures are not judged here.
# Method: the lines that need no long run, on the programs of this build; then the JSON is read back by another reader.
# usage: bench_smoke.sh SOURCE BUILD
set -u
. "$(dirname "$0")/../tap/tap.sh"
source=$1
build=$2
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

report() # TEXT RESULT [FILE TO SHOW WHERE IT FAILED]
{
    shown=${3:-}
    result "$2" "$1"
}

lines=plan,arena,calls,collectives,modes,idle,simulated,bf16-calls,bf16-products,frozen
[ ! -x "$build/tests/bench/bench_parts" ] || lines=$lines,bf16-parts # of static libraries only
"$source/tools/bench/main.py" --build "$build" --quick --only "$lines" \
    --json "$folder/bench.json" >"$folder/table" 2>"$folder/progress"
report 'the quick lines run' $? "$folder/progress"

python3 - "$folder/bench.json" "$lines" >"$folder/read" 2>&1 <<'END'
import json, sys
result = json.load(open(sys.argv[1]))
assert result["schema"] == 1 and result["quick"] is True and result["machine"]["cores"] >= 1, result
lines = result["lines"]
for line in lines:
    assert {"line", "what", "demanded", "measured", "verdict"} <= set(line), line
    assert line["verdict"] in ("pass", "short", "shown"), line
    assert line["what"] != "could not be measured", line
names = [line["line"] for line in lines]
assert set(names) == set(sys.argv[2].split(",")), names
# A counter that counts nothing would pass everywhere: the system's allocator must have been seen.
for name in ("calls", "bf16-calls"):
    calls = next(line for line in lines if line["line"] == name)
    assert "dynamic:malloc 0;" not in calls["measured"] and calls["verdict"] == "pass", calls
parts = {line["what"].split(": ")[1]: line["detail"] for line in lines if line["line"] == "bf16-parts"}
assert "bf16-parts" not in names or {"products forward", "packing of operands", "attention backward", "norms backward",
                                     "optimizer", "copies of gathers", "sums of gradients over ranks", "cross-entropy",
                                     "all else"} <= set(parts), parts
assert all(part["calls"] % 1 == 0 for name, part in parts.items()  # whole steps; communication may be a gather ahead
           if name not in ("copies of gathers", "sums of gradients over ranks", "all else")), parts
assert all(part["seconds"] > 0 and part["bytes"] + part["flops"] > 0 for name, part in parts.items() if name != "all else"), parts
ways = [line["detail"]["way"] for line in lines if line["line"] == "bf16-products"]
assert ways and all(speed > 0 for way in ways for speed in [way["loop_gflops"], *way["shapes"].values()]), ways
END
report 'the JSON is whole, every line was measured, and evenodd makes no calls in a step' $? "$folder/read"

rows=$(grep -cE ' (pass|short|shown)$' "$folder/table")
[ "$rows" -ge 8 ]
report "the table has a row for each ($rows)" $? "$folder/table"

"$source/tools/bench/main.py" --build "$build" --device-file "$folder/device.json" >"$folder/out" 2>&1 &&
    "$build/tools/memplan" --model gpt2 --ranks 1 --kernels cpu --devices "$folder/device.json" --device this-machine --time \
        >"$folder/timed" 2>&1 && grep -q '^time: [0-9.]* s a step' "$folder/timed" && grep -q '"source": "measured by' "$folder/device.json"
report "this machine is measured, and memplan takes the file" $? "$folder/out"
"$source/tools/bench/main.py" --build "$build" --only nonsense --json "$folder/none.json" >/dev/null 2>"$folder/refusal"
[ $? = 2 ] && [ ! -e "$folder/none.json" ] && grep -q nonsense "$folder/refusal"
report 'a line that is not known is refused by name, and nothing is written' $? "$folder/refusal"
finish
