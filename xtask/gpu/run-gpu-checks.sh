#!/usr/bin/env bash
# Runs what lies beside it on a machine with a GPU, which needs no Rust: the tests and examples, then
# the measurements. Writes results/summary.txt, with the counts, and results/*.jsonl. The status is 0
# if no test failed, and all was measured.
#
# CUDA's driver is the machine's; NVRTC and NCCL are those that SPMD_NVRTC_LIB and SPMD_NCCL_LIB name, or that are
# among the packages of the Python that `python3` is (or, where that has none, of the system).
#
#     ./run-gpu-checks.sh [seconds for each program, 300 [the most bytes that a rank has, 1G]]
set -u
cd "$(dirname "$0")"
limit=${1:-300}
most=$(numfmt --from=iec "${2:-1G}")
export PATH="$PWD:$PATH" SPMD_REQUIRE_GPU=1 SPMD_TIMEOUT=60
# named VARIABLE LIBRARY..: names the first of these among Python's packages, unless the variable names one.
packages=$(python3 -c 'import nvidia; print(*nvidia.__path__, sep="\n")' 2> /dev/null)
named() {
    local variable=$1 folder library
    shift
    [ -z "${!variable:-}" ] || return 0
    for library in "$@"; do
        while read -r folder; do
            [ -e "$folder/$library" ] && export "$variable=$folder/$library" && return
        done <<< "$packages"
    done
}
named SPMD_NVRTC_LIB cu13/lib/libnvrtc.so.13 cuda_nvrtc/lib/libnvrtc.so.12
named SPMD_NCCL_LIB nccl/lib/libnccl.so.2

mkdir -p results
summary=results/summary.txt
: > "$summary"

{
    echo "date: $(date -u +%Y-%m-%d)"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | sed 's/^/card: /'
    grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: /processor: /'
    echo "cores: $(nproc)"
} >> "$summary"

status=0
: > results/tests.txt
for tests in gpu gpu_memory gpu_messages gpu_nccl; do
    timeout "$limit" "./$tests" --show-output >> results/tests.txt 2>&1 || status=$?
done
: > results/examples.txt
for run in "-n 4 --as threads ./heat_gpu 2048 500" "-n 2 --as processes ./heat_gpu 2048 500" \
    "-n 4 --as threads ./digits --gpu"; do
    # shellcheck disable=SC2086 # it is several words
    timeout "$limit" spmdrun $run >> results/examples.txt 2>&1 || status=$?
done
# What a test cannot do here it says, and passes.
skipped=$(grep -c '^SKIPPED: ' results/tests.txt)
awk -v skipped="$skipped" -v status="$status" '/^test result: / { passed += $4; failed += $6 }
    END { printf "tests: %d passed, %d failed, %d skipped (status %d)\n",
          passed - skipped, failed, skipped, status }' results/tests.txt >> "$summary"
grep -E '^(CUDA driver|NVRTC|NCCL|device)' results/tests.txt | sort -u >> "$summary"
sed 's/^/example: /' results/examples.txt >> "$summary"

# measure NAME BENCHES OPTIONS..: each collective, small, and as large as memory is to be measured. The last option is how
# many ranks there are.
measure() {
    local name=$1 benches=$2 ranks=${*: -1} rows=() bench bytes calls
    shift 2
    for bench in $benches; do
        for bytes in 8 64K 1M 256M 1G; do
            bytes=$(numfmt --from=iec "$bytes")
            [ "$bytes" -le "$most" ] || continue
            calls=2000
            if [ "$bytes" -ge $((256 << 20)) ]; then
                calls=50
                # In these, a rank has that for each other one.
                case "$bench" in
                    gather | allgather | scatter | alltoall | reduce_scatter) bytes=$((bytes / ranks)) ;;
                esac
            fi
            rows+=(--row "$bench:$bytes:$calls")
        done
    done
    timeout "$limit" spmdrun "$@" spmd-perf --memory device --type f32 --json "${rows[@]}" \
        > "results/$name.jsonl" 2> "results/$name.txt" || status=$?
    local asked=$((${#rows[@]} / 2)) found
    found=$(grep -c . "results/$name.jsonl")
    [ "$found" = "$asked" ] || status=1
    echo "measured $name: $found of $asked rows" >> "$summary"
}

all="allreduce broadcast allgather reduce alltoall"
for ranks in 2 4 8; do
    measure "threads-$ranks" "$all" --as threads -n "$ranks"
done
measure threads-4-others "gather scatter reduce_scatter scan exscan" --as threads -n 4
measure processes-2 "$all" --as processes -n 2
measure nccl-1 "$all" --as gpus --transport nccl -n 1
cat "$summary"
[ "$status" = 0 ]
