#!/bin/bash
# 64 processes, 32 on each host. Submit with: bsub < lsf.sh
#BSUB -J app
#BSUB -n 64
#BSUB -R "span[ptile=32]"
#BSUB -W 00:30
#BSUB -o app.%J.out

source "$HOME/mpi/bin/activate"

# MPICH starts its processes by LSF's blaunch of its own accord; Intel MPI wants to be told.
export I_MPI_HYDRA_BOOTSTRAP=lsf

# The file names each host once for every slot.
spmdrun --hostfile "$LSB_DJOB_HOSTFILE" --bind core ./app
