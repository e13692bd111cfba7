#!/usr/bin/env bash
# Runs what lies beside it on a machine with a GPU, which needs no Rust: the tests, then the
# measurements. Writes results/summary.txt, with the counts, and results/*.jsonl.
#
# CUDA's driver is the machine's; NVRTC is looked for where the system and an active Python
# environment have it, or is named by SPMD_NVRTC_LIB.
#
#     ./run-gpu-checks.sh [seconds for each of the two parts, 300]
set -u
cd "$(dirname "$0")"
limit=${1:-300}
export PATH="$PWD:$PATH" SPMD_REQUIRE_GPU=1 SPMD_TIMEOUT=60
mkdir -p results
summary=results/summary.txt
: > "$summary"

{
    echo "date: $(date -u +%Y-%m-%d)"
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | sed 's/^/card: /'
    grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: /processor: /'
    echo "cores: $(nproc)"
} >> "$summary"

timeout "$limit" ./gpu --nocapture > results/tests.txt 2>&1
status=$?
for tests in gpu_memory gpu_messages gpu_nccl; do
    timeout "$limit" "./$tests" --nocapture >> results/tests.txt 2>&1 || status=$?
done
for how in "-n 4 --as threads" "-n 2 --as processes"; do
    # shellcheck disable=SC2086 # each is several words
    timeout "$limit" spmdrun $how ./heat_gpu 2048 500 >> results/heat.txt 2>&1 || status=$?
done
passed=$(grep -c '^test .* ok$' results/tests.txt)
failed=$(grep -c '^test .* FAILED$' results/tests.txt)
skipped=$(grep -c '^SKIPPED' results/tests.txt)
echo "tests: $passed passed, $failed failed, $skipped skipped (status $status)" >> "$summary"
grep -E '^(CUDA driver|NVRTC|NCCL|device)' results/tests.txt | sort -u >> "$summary"
sed 's/^/heat_gpu: /' results/heat.txt >> "$summary"

# Each collective with 2, 4 and 8 ranks on the card: small, and as large as memory is to be measured.
measured=0
for ranks in 2 4 8; do
    for bench in allreduce broadcast allgather reduce alltoall; do
        for bytes in 8 64K 1M 256M 1G; do
            # In these, a rank has that for each other one.
            case "$bench:$bytes" in
                allgather:256M | alltoall:256M) bytes=$((256 / ranks))M ;;
                allgather:1G | alltoall:1G) bytes=$((1024 / ranks))M ;;
            esac
            calls=$(case "$bytes" in 8 | 64K | 1M) echo 2000 ;; *) echo 50 ;; esac)
            rows[measured]="--row $bench:$bytes:$calls"
            measured=$((measured + 1))
        done
    done
    # shellcheck disable=SC2086 # each row is two words
    timeout "$limit" spmdrun -n "$ranks" --as threads spmd-perf --memory device --type f32 --json \
        ${rows[*]} > "results/threads-$ranks.jsonl" 2> "results/threads-$ranks.txt"
    echo "measured with $ranks threads: $(grep -c . "results/threads-$ranks.jsonl") of $measured" \
        "rows (status $?)" >> "$summary"
    rows=()
    measured=0
done
cat "$summary"
[ "$failed" = 0 ] && [ "$status" = 0 ]
