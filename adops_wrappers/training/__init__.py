"""What the training scripts share, outside the algorithm itself.

Needs `pip install adops-wrappers[train]`; the rest of the package never imports it.

- `args`: flags and their checks
- `distributed`: ranks under torchrun
- `envs`: builds envs and counts episodes
- `encoding`: observations as tensors, RND's whitening
- `acting`: one pass of the networks and one copy to the host per step
- `update`: precision, order of rows and gradient clipping
- `metrics`, `statistics`: what is logged
- `rundir`, `checkpoint`, `log`: files of a run
- `progress`, `exit`: progress bar, time and warnings; error messages and signals
- `play`: plays and films one episode
- `run`: combines all of these
"""
