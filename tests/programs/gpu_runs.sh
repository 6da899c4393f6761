#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Goal: what train and headtohead say and do where there is a GPU: every way in which a machine may lack something is told
#       with exit status 2 before anything is written; what fails later names rank and operation; a run reports its memory
#       beside the plan and the driver's figure; all memory modes end in the same bits; a graph that cannot be made is told,
#       and the run goes on.
# Method: the programs as they are, linked with the simulator in place of CUDA (tests/simulator/tool.c); EO_SIM says what the
#         machine is like. The simulator's own objections end a program with exit status 3.
#         Profilers are libraries of ours that make their records up, or write down what they are told (tests/cuda/).
# usage: gpu_runs.sh SIM_TRAIN SIM_HEADTOHEAD STUB_CUPTI|none STUB_NVTX|none
# shellcheck disable=SC2086 # lists of words
set -u
. "$(dirname "$0")/../tap/tap.sh"
train=$(realpath "$1") headtohead=$(realpath "$2") stub_cupti=none stub_nvtx=none
[ "${3:-none}" = none ] || stub_cupti=$(realpath "$3")
[ "${4:-none}" = none ] || stub_nvtx=$(realpath "$4")
shown='err out'
enter_folder
seq 1 4000 >text
same="--device cuda --text text --model 2x32x4 --seq 16 --batch 1 --steps 4 --peak-seconds 0"
quick="$same --sample 0"

# ends NAME STATUS WORDS MACHINE ARGUMENTS...: of train; WORDS are on standard error. With status 2 nothing is written.
ends()
{
    name=$1 wanted=$2 words=$3
    export EO_SIM="$4"
    shift 4
    rm -f log.jsonl
    "$train" $quick --log log.jsonl "$@" >out 2>err
    status=$?
    echo "exit status $status; wanted is $wanted, and: $words" >>out
    [ $status = "$wanted" ] && grep -q -e "$words" err && { [ "$wanted" != 2 ] || [ ! -e log.jsonl ]; }
    result $? "$name"
}

# Before anything is trained.
ends 'no driver' 2 'no NVIDIA driver' no_driver
ends 'a driver that is too old: both versions are named' 2 'CUDA up to 12.4, but this build needs [0-9]*\.[0-9]' driver=12040
ends 'no GPU' 2 'finds no GPU' no_gpu
ends 'no cuBLASLt' 2 'cuBLASLt cannot be loaded' lacks=cublaslt
ends 'no driver and no cuBLASLt: both are told' 2 'no NVIDIA driver.*; cuBLASLt cannot be loaded' no_driver,lacks=cublaslt
ends 'a GPU that this build is not for' 2 'capability 7.5, but this build is for sm_.*-Dgpu_archs=75' architecture=75
ends 'memory that will not hold the plan: needed' 2 'MiB are needed on a GPU' gpus=1,mib=80 --batch 512
ends 'memory that will not hold the plan: by category' 2 'by category: .*activations [0-9]' gpus=1,mib=80 --batch 512
ends 'memory that will not hold the plan: free' 2 'of 80 MiB are free' gpus=1,mib=80 --batch 512
ends 'memory that will not hold the plan: what would fit' 2 '--batch [0-9]* would fit' gpus=1,mib=80 --batch 512 --ranks 1
CUDA_DEVICE_MAX_CONNECTIONS=1
export CUDA_DEVICE_MAX_CONNECTIONS
ends 'one hardware queue for all streams' 2 'CUDA_DEVICE_MAX_CONNECTIONS is 1' ''
unset CUDA_DEVICE_MAX_CONNECTIONS

# What fails later: the cause first, with rank and operation.
# One rank: of several, any may be the first to meet the lost GPU.
ends 'a sticky error ends the run: step, rank and operation' 1 \
    'step 1, rank 0: cudaStreamWaitEvent: .*CUDA error 719.*lost to this process' fail=cudaStreamWaitEvent:3:719 \
    --ranks 1 --repeatable
ends 'work that fails on the GPU ends the run' 1 \
    'step 1, rank 0: .*\(CUDA error 719\|cublasLtMatmul failed\).*lost to this process' lost=50 \
    --ranks 1 --repeatable
ends 'work that fails in a graph ends the run' 1 'step [2-4], rank 0: .*CUDA error 719.*lost to this process' lost=300 \
    --ranks 1 --repeatable
ends "memory that NCCL does not get is told with NCCL's words" 1 'ncclMemAlloc: .*could not be reserved' fail=ncclMemAlloc:0
ends 'pinned memory that is not there' 1 'the host gave no .* MiB of pinned memory' fail=cudaHostAlloc:0
ends 'cuBLASLt that does not start' 1 'rank [0-9]: .*cublasLtCreate .* failed' fail=cublasLtCreate:0
ends 'a product that fails: step, rank and call' 1 'step 1, rank [0-9].*cublasLtMatmul failed' fail=cublasLtMatmul:5 --repeatable
ends 'a capture that fails: why, and the run goes on' 0 'cannot run as a graph here.*cudaStreamEndCapture' \
    fail=cudaStreamEndCapture:0:901
ends 'a graph that cannot be made: why, and the run goes on' 0 'cannot run as a graph here.*cudaGraphInstantiate' \
    fail=cudaGraphInstantiate:0

# What a run reports.
EO_SIM=gpus=1
"$train" $quick --ranks 1 --batch 2 --log log.jsonl >out 2>err
result $? 'a rank on a GPU trains'
grep -q '^  host  *[0-9.]* ms, median of rank 0' out && grep -q '"host_s_median":[0-9.e-]*[1-9]' log.jsonl
result $? 'what the host does for a step is told apart from its waiting'
grep -q 'steps as a graph after the first' out && grep -q 'of graphs only the whole time is known' out
result $? 'that steps are a graph is said, and what is not seen in it'
share=$(sed -n 's/.*planned and outside are \([0-9.]*\) %.*/\1/p' out)
[ "$(grep -c '^  .* MiB .*\(before the ranks began\|for communicators\|libraries of products\)' out)" = 3 ] &&
    awk "BEGIN { exit !(\"$share\" != \"\" && $share > 99 && $share < 101) }"
result $? 'memory beside the plan is in lines of its own, and with the plan it is what the driver counts, within 1 %'
grep -q '^rank 0: device cuda, GPU 0 of 1: ' out && grep -q '"device_outside_bytes":[1-9]' log.jsonl &&
    grep -q '"device_peak_bytes":[1-9]' log.jsonl
result $? 'the device is named, and the figures are in the log'
# The simulated GPU has times of its own, the same in every run; the host's are others each time.
for graph in on off; do
    for run in 1 2; do
        "$train" $quick --ranks 1 --steps 8 --graph $graph --log log.jsonl >out.$run 2>err
        grep -o '"step_s":[0-9.e-]*' log.jsonl | tail -n +2 >steps.$run # the first begins on the host
    done
    cat steps.1 steps.2 out.1 >out
    cmp -s steps.1 steps.2 && [ "$(wc -l <steps.1)" = 7 ] &&
        cut -d : -f 2 steps.1 | awk -v told="$(sed -n 's/^  step  *\([0-9.]*\) ms, median.*/\1/p' out.1)" \
            '{ sum += 1000 * $1 } END { mean = sum / NR; exit !(told > 0 && told - mean < 0.006 && mean - told < 0.006) }'
    result $? "with --graph $graph times of steps are the GPU's, whatever the host does, and their mean is what is told"
done
"$train" $quick --ranks 2 --graph off --peak-tflops 989 --trace trace.json >out 2>err && grep -q 'exposed communication' out &&
    grep -q 'MFU of a GPU .* of 989 TFLOP/s' out && grep -q 'x tokens / step' out && grep -q 'tokens/s' out &&
    grep -q 'all-gather of' trace.json
result $? 'tokens/s, MFU with its formula, exposed communication and a trace'

"$train" $quick --ranks 2 --graph on >out 2>err
hash=$(grep -o 'weights_hash [0-9a-f]*' out)
EO_SIM=gpus=1,lacks=nccl "$train" $quick --ranks 2 --graph on >out 2>err && [ "$(grep -o 'weights_hash [0-9a-f]*' out)" = "$hash" ]
result $? 'where NCCL cannot be loaded, ranks of one process do without, with the same bits'
"$train" $quick --ranks 2 --graph on --trace trace.json >out 2>err && grep -q 'exposed communication' out &&
    [ "$(grep -o 'weights_hash [0-9a-f]*' out)" = "$hash" ] &&
    [ "$(grep -o '"cat":"[a-vx-z][^}]*"step":[1-3],' trace.json | grep -o '[0-9],$' | sort | uniq -c | awk '{ print $1 }' | sort -u | wc -l)" = 1 ]
result $? 'steps as a graph are in the trace, operation for operation, and what compute waits for is told; the bits are the same'

for dtype in fp32 bf16; do
    for mode in 'static --graph on' 'static --graph off' dynamic:malloc dynamic:pool dynamic:caching; do
        "$train" $quick --ranks 2 --dtype $dtype --memory $mode >out 2>err
        echo "$? $dtype $(grep -o 'weights_hash [0-9a-f]*' out)" | tee -a hashes.$dtype >>out
    done
    [ "$(wc -l <hashes.$dtype)" = 5 ] && [ "$(sort -u hashes.$dtype | grep -c '^0 .*weights_hash')" = 1 ]
    result $? "all memory modes, with graphs and without, end in the same bits in $dtype"
done

for words in '--strategy zero3 --graph off' '--strategy zero3 --recompute all' '--strategy zero2' '--strategy ddp --graph off'; do
    "$train" $quick --ranks 2 --dtype bf16 --lora r=4,targets=c_attn --frozen mxfp8 --lr 0 --weight-decay 0 $words --export base \
        --export-merged >out 2>err
    echo "$? $(md5sum <base/model.safetensors)" >>bases
    rm -rf base
done
"$train" $quick --device cpu --ranks 3 --threads 1 --dtype bf16 --lora r=4,targets=c_attn --frozen mxfp8 --lr 0 --weight-decay 0 \
    --export base --export-merged >out 2>err && grep -q "$(md5sum <base/model.safetensors)" bases && cp bases out && [ "$(wc -l <bases)" = 4 ] &&
    [ "$(sort -u bases | grep -c '^0')" = 1 ]
result $? 'a base in MXFP8 is that of a CPU, with all strategies'

"$headtohead" $same --ranks 2 --runs 1 --json h.json >out 2>err && grep -q 'All runs end with the same weights' out &&
    grep -q 'dynamic:caching' out && grep -q 'start delay of an all-gather  *[0-9.]* us  *-' out && grep -q 'bytes copied a step' out &&
    grep -q 'bytes cast a step' out && grep -q 'host time of a step, median  *[0-9]' out &&
    grep -q 'blocks beside a collective / alone' out && grep -q 'pass_slowdown' h.json
result $? 'headtohead compares all modes on a GPU, with what gives way to collectives and what is copied'
"$headtohead" $same --ranks 2 --runs 1 --graph on >out 2>err && grep -q 'all-gather, exposed of all  *-  *[0-9]' out
result $? 'what is not seen in graphs is not told as nothing'

# Profilers.
if [ "$stub_nvtx" = none ]; then
    skip 'NVTX' 'its header was not there'
else
    NVTX_INJECTION64_PATH=$stub_nvtx EO_STUB_NVTX=nvtx "$train" $quick --ranks 2 --graph off --trace trace.json >out 2>err
    grep -o '"name":"[^"]*","cat":"[a-vx-z][^"]*"' trace.json | cut -d '"' -f 4 | sort | uniq -c >wanted
    sed -n 's/^push //p' nvtx | sort | uniq -c >told
    diff wanted told >out
    [ -s wanted ] && [ ! -s out ] && [ "$(grep -c '^push' nvtx)" = "$(grep -c '^pop' nvtx)" ]
    result $? 'a profiler is told a range for every operation of every step, by its name, through NVTX'
fi
# Offloaded to the host's memory: nothing but the place differs, at every step.
EO_SIM=
for offload in '' '--offload-layers all --offload-slots 4'; do
    "$train" $quick --ranks 2 --dtype bf16 $offload --checkpoint "saved${offload:+.offloaded}" --checkpoint-every 1 >out 2>err || break
done
grep -q '^offload: .* MiB a rank in pinned memory of the host' out && [ "$(find saved -name 'rank-*' | wc -l)" = 8 ] &&
    find saved -name 'rank-*' | while read -r file; do cmp "$file" "saved.offloaded${file#saved}" || exit 1; done
result $? 'offloaded: the checkpoints of all steps have the bytes of those with everything on the GPU'
for offload in '' '--offload-layers all --late-updates' '--offload-layers 2 --late-updates --checkpoint saved.late --checkpoint-every 4'; do
    "$train" $quick --ranks 2 --dtype bf16 --steps 7 --graph on $offload >out 2>err && grep -o 'weights_hash [0-9a-f]*' out >>late
done
[ "$(wc -l <late)" = 3 ] && [ "$(sort -u late | wc -l)" = 1 ]
result $? 'updated late, as a graph, with a checkpoint between: the same weights'
"$train" $quick --ranks 2 --graph on --steps 1 --checkpoint saved.late --checkpoint-used --checkpoint-every 1 --checkpoint-in-place >out 2>err &&
    grep -q 'operation by operation, for a checkpoint follows each' out && grep -q 'nothing is offloaded that could be written in place' out
result $? 'that steps are no graphs where a checkpoint follows each is told, and that nothing is there to be saved in place'
rm -rf saved.late
"$train" $quick --ranks 2 --offload-layers all --offload-folder . >out 2>err
[ $? = 2 ] && grep -q 'offload-folder needs --device cpu' err
result $? 'a folder for what is offloaded is refused: it lies in memory'
rm -rf saved saved.offloaded
echo '{"products_flops_per_s": 5e14, "memory_bytes_per_s": 2.5e12, "disk_bytes_per_s": 2.5e10, "link_bytes_per_s": 2.5e10}' >rates.json
job="$quick --ranks 2 --model 8x64x4 --seq 32"
"$train" $job >out 2>err && one=$(grep -o 'weights_hash [0-9a-f]*' out) && "$train" $job --rates rates.json --budget 3MB,1GB >out 2>err &&
    grep -q '^budget: 2.9 MiB a rank: .* in host memory .* and [0-9.]* of 953.7 MiB of the host, predicted' out && [ -n "$one" ] &&
    [ "$(grep -o 'weights_hash [0-9a-f]*' out)" = "$one" ]
result $? '--budget DEVICE,HOST: half the memory of the GPU, the rest on the host, the same weights'
"$train" $job --budget 3MB,1GB >out 2>err && grep -q '^rates of a rank: products [1-9].*, memory [1-9].*, copies from and to the host [1-9].* tried out: a block [1-9]' out &&
    grep -q '^budget: 2.9 MiB a rank: ' out && [ "$(grep -o 'weights_hash [0-9a-f]*' out)" = "$one" ]
result $? 'without --rates the GPU is measured, and blocks are tried out on it'
EO_SIM=gpus=1 "$train" $job --budget 3MB,1GB >out 2>err && grep -q 'tried out: a block [1-9]' out
result $? 'on one GPU for both ranks, too'
EO_SIM=no_gpu "$train" $job --budget 3MB,1GB >out 2>err
[ $? = 2 ] && grep -q 'speeds could not be measured: .*finds no GPU.*give --rates FILE' err
result $? 'without a GPU, too, a message says to give --rates'
"$train" $job --rates rates.json --budget 1KB,1GB >out 2>err
[ $? = 2 ] && grep -q 'the least is [0-9]* bytes .* of the device, with [0-9]* .* of the host' err
result $? 'too little: the least of both is named'
# The least of the device for a host of that size, or of the host where it is smaller.
least_of() { sed -n 's/.*the least is \([0-9]*\) bytes .* of the device, with \([0-9]*\) .*/\1,\2/p' err; }
plan="$job --rates rates.json --plan --budget"
binds() # BUDGET: of its plan
{
    "$train" $plan $1 >out 2>err && awk -v device=${1%,*} -v host=${1#*,} '
        /^  arena / { arena = $2; sub(/.*, host /, ""); staged = $1 + 0 }
        /^  disk\./ { away += $(NF - 1) }
        END { exit !(arena > 0 && staged > 0 && arena - staged <= device && staged + away <= host) }' out
}
refuses() { ! "$train" $plan $1 >out 2>err && [ "$(least_of)" = "$2" ]; } # BUDGET LEAST
before=0
for host in 1000000000 2000000 530000 100000; do
    "$train" $plan 1KB,$host >out 2>err
    least=$(least_of) && [ -n "$least" ] &&
        device=${least%,*} && needed=${least#*,} && [ $device -ge $before ] && before=$device &&
        refuses $((device - 1)),$host $least && refuses $((device - 1)),$needed $least && binds $device,$needed &&
        { [ $needed -gt $host ] || binds $device,$host; } && { [ $needed -le $host ] || refuses 1GB,$host $least; }
    result $? "$host bytes of the host: both parts bind; the least is ${least:-}, and a byte less of the device is refused"
done
for budget in 3MB 3MB,0 available; do
    "$train" $job --rates rates.json --budget $budget >out 2>err
    [ $? = 2 ] && grep -q 'DEVICE,HOST\|above 0\|such as 80GB' err
    result $? "a budget of GPUs has two sizes: refused: $budget"
done

if [ "$stub_cupti" = none ]; then
    skip 'CUPTI' 'its header was not there'
    "$train" $quick --cupti on >out 2>err
    [ $? = 2 ] && grep -q 'this build cannot report' err
    result $? 'a build without CUPTI says so'
else
    cupti="--cupti on --cupti-library $stub_cupti"
    "$train" $quick --ranks 2 --trace trace.json $cupti >out 2>err &&
        grep -q '"name":"ncclDevKernel_AllGather_RING_LL","cat":"kernel".*"operation":"all-gather of block.1"' trace.json &&
        grep -q '"name":"sum_in_order","cat":"kernel".*"operation":"update of block.1"' trace.json &&
        grep -q 'process_name.*GPU 0, by CUPTI' trace.json && [ "$(grep -o 'weights_hash [0-9a-f]*' out)" = "$hash" ]
    result $? 'kernels are in the trace, each with the operation that it was issued in, as CUPTI tells'
    begins_of() { grep -o "\"cat\":\"$1\"[^}]*\"dur\"" trace.json | sed 's/.*"ts":\([0-9.]*\),.*/\1/' | sort -n; }
    awk "BEGIN { exit !($(begins_of kernel | head -n 1) >= $(begins_of all-gather | head -n 1) - 6e8 &&
        $(begins_of kernel | tail -n 1) <= $(begins_of all-gather | tail -n 1) + 6e8) }"
    result $? 'by the same clock as the ranks'
    grep -q '^  all-gather  *by plain kernels of NCCL: [0-9]*, such as ncclDevKernel_AllGather_RING_LL, of at most 4 blocks' out &&
        grep -q '^  reduce-scatter  *by plain kernels of NCCL.*_ReduceScatter_Sum_f32_RING_LL, of at most 5 blocks' out
    result $? 'the way that collectives really took is told: kernels, by name and blocks'
    EO_STUB_CUPTI=engine "$train" $quick $cupti >out 2>err && grep -q '^  all-gather  *by copies alone, no kernels' out
    result $? '... and copy engines'
    EO_STUB_CUPTI=small "$train" $quick $cupti >out 2>err && grep -q 'the latest; [1-9][0-9]* more are not kept' out
    result $? 'records that CUPTI had no room for are counted'
    ends 'a CUPTI that is not there is told before anything is trained' 2 'cannot load .*nothing.so.*LD_LIBRARY_PATH' '' \
        --cupti on --cupti-library ./nothing.so
    export EO_STUB_CUPTI=old
    ends 'a CUPTI of an older version is refused: both are named' 2 'version 12, but this build is for [0-9]' '' $cupti
    export EO_STUB_CUPTI=busy
    ends 'a profiler that is at work already is told' 2 'another profiler is running' '' $cupti
    unset EO_STUB_CUPTI
    "$headtohead" $same --ranks 2 --runs 1 $cupti --json h.json >out 2>err && grep -q '^kernels a step, by CUPTI  *[1-9]' out &&
        grep -q 'gpu_kernels_per_step": *[1-9]' h.json
    result $? 'headtohead tells how many kernels and copies a step really has'
fi
finish
