#!/bin/bash
# 64 processes (Grid Engine). Submit with: qsub sge.sh
# `mpi` is the name of a parallel environment of the cluster (qconf -spl lists them); it needs
# `control_slaves TRUE` for processes to be started on other hosts.
#$ -N app
#$ -S /bin/bash
#$ -cwd
#$ -pe mpi 64
#$ -l h_rt=00:30:00
#$ -j y

source "$HOME/mpi/bin/activate"

# MPICH starts its processes by qrsh of its own accord; Intel MPI wants to be told.
export I_MPI_HYDRA_BOOTSTRAP=sge

# A line of PE_HOSTFILE is `host slots queue processors`; a host may have several.
awk '{ print $1 ":" $2 }' "$PE_HOSTFILE" > "$TMPDIR/hosts"
spmdrun --hostfile "$TMPDIR/hosts" --bind core ./app
