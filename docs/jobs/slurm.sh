#!/bin/bash
# 64 processes on two nodes, one a core. Submit with: sbatch slurm.sh
#SBATCH --job-name=app
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=32
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --output=app-%j.out

# The Python environment with the MPI library; or a `module load`.
source "$HOME/mpi/bin/activate"

# For Intel MPI under srun, the library of Slurm's process management:
# export I_MPI_PMI_LIBRARY=/usr/lib64/libpmi2.so

spmdrun --doctor ./app
# The number of ranks and the nodes are those of the allocation.
spmdrun --transport mpi --bind core ./app
