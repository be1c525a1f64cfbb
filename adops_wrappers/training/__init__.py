"""What the training scripts share, outside the algorithm itself.

Needs `pip install adops-wrappers[train]`; the rest of the package never imports it.

- `args`: flags and their checks
- `distributed`: ranks under torchrun
- `envs`: builds envs and counts episodes
- `encoding`: observations as tensors, RND's whitening
- `acting`, `minibatches`: few copies between host and device
- `gradients`, `metrics`: clipping and precision of the update; what is logged
- `rundir`, `checkpoint`, `log`: files of a run
- `progress`, `signals`: progress bar and time; stopping
- `play`: plays and films one episode
- `run`: combines all of these
"""
