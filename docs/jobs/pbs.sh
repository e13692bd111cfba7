#!/bin/bash
# 64 processes on two nodes (OpenPBS, PBS Professional). Submit with: qsub pbs.sh
#PBS -N app
#PBS -l select=2:ncpus=32:mpiprocs=32
#PBS -l place=scatter
#PBS -l walltime=00:30:00
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit
source "$HOME/mpi/bin/activate"

# The file names each node once for every process, mpiprocs times: those are its slots.
spmdrun --hostfile "$PBS_NODEFILE" --bind core ./app
