#!/bin/bash
# 64 ranks on two nodes: four processes of 16 thread ranks. Submit with: sbatch slurm-hybrid.sh
#SBATCH --job-name=app
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=16
#SBATCH --time=00:30:00
#SBATCH --output=app-%j.out

source "$HOME/mpi/bin/activate"

# A task of Slurm is a process here, and each of its cores a rank.
spmdrun --transport mpi --ranks-per-process "$SLURM_CPUS_PER_TASK" --bind core ./app
