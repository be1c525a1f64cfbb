"""The parts of a sweep: cells, plan, processes, this machine, SLURM, and what is shown."""
