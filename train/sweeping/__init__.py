"""The rooms of train/sweep.py: cells, plan, processes, this machine, SLURM, and what is shown."""
