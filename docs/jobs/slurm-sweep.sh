#!/bin/bash
# How collectives and messages scale on up to eight nodes. Submit with: sbatch slurm-sweep.sh
# When the time is over, submit it again: it goes on with what is left.
#SBATCH --job-name=sweep
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=32
#SBATCH --cpus-per-task=1
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --output=sweep-%j.out

# The Python environment with the MPI library; or a `module load`.
source "$HOME/mpi/bin/activate"

spmdrun --doctor
# 1, 2, 4 and 8 nodes; processes, and processes of 8 and of 32 thread ranks.
spmd-perf sweep --hostfile <(scontrol show hostnames "$SLURM_JOB_NODELIST") \
    --ranks-per-host 1,8,32 --ranks-per-process 8,32 --bind core --out sweep
