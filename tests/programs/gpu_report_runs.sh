#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: tools/dev gpu tells what held, what did not and what was not run, and why; no command holds up the rest.
# Method: lists of steps of the test's own, with commands that hang, fail, skip or are not there; then the real list with
#         stand-in programs that answer as ours do, once well and once with a fault in each.
# usage: gpu_report_runs.sh SOURCE
set -u
. "$(dirname "$0")/../tap/tap.sh"
python=$(command -v python3) # by its path: a stand-in takes the name
gpu_report=$1/tools/bench/gpu.py
make_folder
shown="$work/out $work/report"
unset EO_STANDIN_FAULT

# go ARGS: leaves $code and the seconds it took
go()
{
    begin=$(date +%s)
    "$python" "$gpu_report" "$@" "$work/report" >"$work/out" 2>&1
    code=$?
    took=$(($(date +%s) - begin))
}

told() { grep -q -e "$1" "$work/out"; }

# --- without a GPU -----------------------------------------------------------------------------------------------------

if [ -e /dev/nvidia0 ]; then
    skip 'without a GPU all of it is told to be not measured' 'there is a GPU'
else
    go
    steps=$("$python" "$gpu_report" --list | wc -l)
    [ $code = 2 ] && [ "$steps" -ge 10 ] && told 'no GPU' && [ "$(grep -c '^not measured .*: no GPU' "$work/out")" = "$steps" ] &&
        [ "$(grep -c '"status": "not measured"' "$work/report")" = "$steps" ]
    result $? "without a GPU all $steps steps are told to be not measured, and why"
fi

# --- what a command may do ---------------------------------------------------------------------------------------------

cat >"$work/list" <<'END'
PARTS = [{"hangs": 30, "stubborn": 30, "own_end": 3, "taps": 30}, {"verdicts": 30, "breaks": 30, "after": 30}]
def hangs(r): r.judge("a command that hangs", r.run(1, "sleep", "60"))
def stubborn(r): r.judge("one that will not be told", r.run(1, "sh", "-c", 'trap "" TERM; while true; do sleep 1; done'))
def own_end(r):
    r.judge("longer than its step", r.run(60, "sleep", "50"))
    r.judge("after the end of the step", r.run(60, "true"))
def taps(r):
    r.tap("good TAP", r.run(5, "echo", "ok 1 - good"))
    r.tap("bad TAP", r.run(5, "printf", 'ok 1 - good\nnot ok 2 - "bad"\\\n'))
    r.tap("skipped TAP", r.run(5, "echo", "1..0 # SKIP there is none"))
    r.tap("empty TAP", r.run(5, "echo", "nothing"))
    r.tap("TAP of one that died", r.run(5, "sh", "-c", "echo ok 1 - good; exit 3"))
def verdicts(r):
    r.judge("status 1", r.run(5, "sh", "-c", 'echo "{\\"figure\\": 1}"; echo broken; exit 1'))
    r.judge("status 2", r.run(5, "sh", "-c", "echo refused; exit 2"))
    r.judge("not there", r.run(5, "no-such-program"))
    r.judge("a setting", r.run(5, "sh", "-c", 'test "$GREETING" = hello', env={"GREETING": "hello"}))
    r.judge("a child that stays", r.run(5, "sh", "-c", "sleep 30 & echo gone"))
def breaks(r): r.judge("no such thing", r.walk(5, "true"))
def after(r): r.judge("the last one", r.run(5, "true"))
END
go --no-gpu --steps "$work/list" --minutes 5
[ $code = 1 ] && [ $took -lt 40 ] && told '^fail  *a command that hangs: cut off at its limit of 1 s' &&
    told '^fail  *one that will not be told: cut off' && told '^pass  *the last one'
result $? "a command that hangs is cut off at its limit, and the rest goes on ($took s)"
told '^fail  *longer than its step: cut off' && told '^not measured  *after the end of the step: no time was left'
result $? 'a step ends at its own limit, whatever it runs'
told '^pass  *good TAP' && told '^fail  *bad TAP: 1 of 2 cases: not ok 2' && told '^not measured  *skipped TAP: SKIP there is none' &&
    told '^fail  *empty TAP' && told '^fail  *TAP of one that died'
result $? 'cases that fail, are skipped or are not there are told apart'
told '^fail  *status 1: status 1: broken' && told '^not measured  *status 2: status 2: refused' &&
    told '^not measured  *not there: .*there is no no-such-program' && told '^pass  *a setting'
result $? 'what failed, what refused and what is not there are told apart'
told '^pass  *a child that stays' && told '^fail  *breaks: the step itself broke: AttributeError'
result $? 'neither a process that stays nor a mistake of a step holds up the rest'
grep -qx '{"figure": 1}' "$work/report" && grep -q '^5 passed\|^[0-9]* passed, [0-9]* failed' "$work/report"
result $? 'figures of a command stand in the report, and so do the totals'
"$python" -c 'import json, sys
lines = [json.loads(l) for l in open(sys.argv[1]) if l.startswith("{")]
assert len([l for l in lines if l.get("line")]) == 16 and lines[-1]["failed"] == 8, lines' "$work/report" 2>"$work/out"
result $? 'every line of JSON can be read, whatever the texts are'

go --no-gpu --steps "$work/list" --minutes 0
[ $code = 2 ] && [ "$(grep -c '^not measured .*no time was left of the 0 minutes' "$work/out")" = 7 ]
result $? 'when the time is over, the rest is told to be not measured'
go --no-gpu --steps "$work/list" --only after
[ $code = 0 ] && told '^1 passed, 0 failed'
result $? 'a single step can be run'
go --no-gpu --steps "$work/list" --only afterwards
[ $code = 2 ] && told "no step 'afterwards'"
result $? 'a step that is not there is refused'

# --- a report that is whole, and a run that goes on ----------------------------------------------------------------------

cat >"$work/parts" <<'END'
PARTS = [{"first": 20, "long": 400, "hangs": 25}]
def first(r): r.judge("the first", r.run(5, "true"))
def long(r): r.judge("the long one", r.run(5, "true"))
def hangs(r): r.judge("one that hangs", r.run(20, "sleep", "20"))
END
cp "$work/list" "$work/foreign"
"$python" "$gpu_report" --no-gpu --steps "$work/parts" --only first "$work/foreign" >"$work/out" 2>&1
[ $? = 2 ] && cmp -s "$work/list" "$work/foreign" && told 'is no report of this command'
result $? 'a file that is no report is refused, and stays as it is'
rm -f "$work/report"
TMPDIR=$work "$python" "$gpu_report" --no-gpu --steps "$work/parts" --minutes 1 "$work/report" >"$work/out" 2>&1 &
sleep 3
kill -KILL $!
wait $! 2>/dev/null
sed -n '/^=== summary/,$p' "$work/report" >"$work/out"
told '^pass  *the first' && told '^not measured  *long: it takes up to 400 s' && told '^1 passed, 0 failed, 0 figures, 1 not measured'
result $? 'the report is whole after every step, whatever ends the run'
go --no-gpu --steps "$work/parts" --minutes 1 --only first,long
[ $code = 0 ] && told '^To go on: tools/dev gpu --only long ' && go --no-gpu --steps "$work/parts" --only long && [ $code = 0 ] &&
    [ "$(grep -c '^pass  *the first' "$work/report")" = 4 ] && [ "$(grep -c '^evenodd on a GPU' "$work/report")" = 3 ] &&
    tail -n 1 "$work/report" | grep -q '"passed": 1, "failed": 0'
result $? 'what was left is told, and with --only the report that is there is added to'
cat >"$work/usage" <<'END'
PARTS = [{"usage": 20}]
def usage(r): r.judge("an option that is not taken", r.run(5, "sh", "-c", "echo \"Try 'train --help' or so\" >&2; exit 2"))
END
go --no-gpu --steps "$work/usage"
[ $code = 1 ] && told '^fail  *an option that is not taken'
result $? 'an option that a program does not take is a failure, and not: not measured'
"$python" -c 'import runpy, sys
parts = runpy.run_path(sys.argv[1])["PARTS"]
sys.exit(len(parts) != 4 or not all(0 < sum(part.values()) <= 540 for part in parts))' "$1/tools/bench/lines/gpu.py"
result $? 'each part of the list fits into 9 minutes'

# --- the real list, with stand-ins -------------------------------------------------------------------------------------

bin=$work/carried/bin
mkdir -p "$bin" "$work/carried/lib"
cat >"$bin/train" <<'END'
#!/bin/sh
[ "$1" != --plan ] || { echo '  arena   1000000000   953.67   to be reserved'; exit 0; }
log='' device=cpu graph='' ranks=1 hash=1234
while [ $# -gt 0 ]; do
    case $1 in --log) log=$2 ;; --device) device=$2 ;; --graph) graph=$2 ;; --ranks) ranks=$2 ;; esac
    shift
done
loss=2.5
case $EO_STANDIN_FAULT in
loss) [ $device = cpu ] || loss=2.51 ;;
nan) [ $device = cpu ] || loss=null ;;
ranks) [ $ranks = 1 ] || loss=3 ;;
hash) [ "$graph" != on ] || hash=4321 ;;
graph) [ "$graph" != on ] || echo 'train: --graph on: steps cannot run as a graph here: none' >&2 ;;
esac
host=0.0004 peak=1154482176
[ "$EO_STANDIN_FAULT" != host ] || host=0.0012
[ "$EO_STANDIN_FAULT" != memory ] || peak=1300000000
echo '  all-gather       by copies alone, no kernels; 0 copies between GPUs, 24 within one'
[ -n "$log" ] || exit 0
for step in $(seq 1 20); do echo "{\"step\":$step,\"loss\":$loss,\"grad_norm\":1.0,\"lr\":0.1}"; done >"$log"
echo "{\"summary\":{\"weights_hash\":\"$hash\",\"planned_bytes\":1048576000,\"allocator_calls_per_step\":0.0,\"tokens_per_s\":80000.0,\"step_s_median\":0.01,\"host_s_median\":$host,\"device_planned_bytes\":1048576000,\"device_outside_bytes\":104857600,\"device_peak_bytes\":$peak,\"steps\":20}}" >>"$log"
END
cat >"$bin/python3" <<'END'
#!/bin/sh
case $* in
*'import nvidia'*) exit 1 ;;
*'import torch'*) exit 0 ;;
*'--batch 32'*) echo 'torch.OutOfMemoryError: CUDA out of memory.' >&2; exit 1 ;;
*fsdp2.py*)
    [ "$EO_STANDIN_FAULT" != slow ] || { echo '{"tokens_per_s": 79000.0, "peak_device": 2000000000}'; exit 0; }
    echo '{"tokens_per_s": 50000.0, "peak_device": 2000000000}' ;;
esac
END
for name in conformance_device conformance_element_types conformance_cuda_kernels layer_gradients; do
    printf '#!/bin/sh\necho "ok 1 - fine"\n' >"$bin/$name"
done
cat >"$bin/compute-sanitizer" <<'END'
#!/bin/sh
case "$*" in
*'--tool racecheck'*) case "$*" in *'--kernel-name kns=swiglu_backward_kernel'*'--kernel-name kns=update_kernel'*) ;; *) exit 5 ;; esac ;;
*) case "$*" in *'--report-api-errors no'*) ;; *) exit 5 ;; esac ;;
esac
while case $1 in --*) true ;; *) false ;; esac; do
    shift 2
done
exec "$@"
END
printf '#!/bin/sh\necho "{\\"free_bytes\\": 140000000000}"\n' >"$bin/gpu_probe"
for name in rank_share sdpa_check giveway headtohead; do
    printf '#!/bin/sh\necho "{\\"experiment\\": \\"%s\\"}"\n' "$name" >"$bin/$name"
done
chmod +x "$bin"/*
PATH=$bin:$PATH

real() # FAULT [ARGS]
{
    EO_STANDIN_FAULT=$1
    export EO_STANDIN_FAULT
    shift
    go --no-gpu --carry "$work/carried" "$@"
}

real none
[ $code = 0 ] && told '^pass  *conformance\|^pass  *the device: kernels' && told '^pass  *tiny in bf16, GPU against CPU' &&
    told '^pass  *4 ranks on one GPU against 1, bf16' && told '^pass  *dynamic:caching against static --graph off, bf16' &&
    told '^pass  *gpt2-xl, seq 1024, bf16, 1 rank: against FSDP2 with torch.compile: 80000 tokens/s against 50000' &&
    told '^figure  *gpt2-xl, seq 1024, bf16, 1 rank: tokens/s: 80000 with batch 16' &&
    told '^pass  *llama-1b, seq 4096, bf16, 1 rank: plan + measured' && told '^pass  *E1: a rank that is killed' &&
    told '^pass  *E4: gpt2, 2 ranks, graph against eager' && told '^pass  *E5' && ! told '^fail' &&
    told '^pass  *host time of a step, gpt2, 1 rank, graph on: 0.0004 s' &&
    told '^figure  *CUPTI: all-gather of 2 ranks on a GPU ran: by copies alone'
result $? 'the real list runs through on stand-ins that answer well'

broken() # FAULT STEP WORDS: all that fails is what WORDS are found in
{
    real "$1" --only "$2"
    [ $code = 1 ] && told "^fail.*$3" && ! grep '^fail' "$work/out" | grep -qv -e "$3"
    result $? "a fault is seen where it is, and only there: $1"
}

broken loss losses 'fp32, GPU against CPU: losses of 20 steps'
broken nan losses 'GPU against CPU: losses of 20 steps'
broken ranks ranks 'ranks on one GPU against 1'
broken hash modes 'graph.*weights_hash 4321, and not 1234'
broken graph modes 'cannot run as a graph here'
broken host eager_graph 'graph on: 0.0012 s .*less than 1 ms is wanted'
broken memory llama_1b 'plan + measured outside.*more than 1 % apart'
broken slow llama_1b '79000.0: 1.013 times, and 1.1 is wanted'

# --- what travels ------------------------------------------------------------------------------------------------------

mkdir -p "$work/own/bin"
touch "$work/own/bin/precious"
"$1/tools/bench/carry" "$work/own" a=/bin/true >"$work/out" 2>&1
[ $? = 1 ] && [ -e "$work/own/bin/precious" ] && told 'holds other things' &&
    "$1/tools/bench/carry" "$work/new" a=/bin/true >"$work/out" &&
    "$1/tools/bench/carry" "$work/new" b=/bin/true >"$work/out" && [ -x "$work/new/bin/b" ] && [ ! -e "$work/new/bin/a" ]
result $? 'carry fills a new folder, and its own again, and removes nothing of another'
finish
