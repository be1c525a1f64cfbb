"""What the training scripts share and a reader of the algorithm would skip.

Needs `pip install adops-wrappers[train]`; the rest of the package never imports it. One job per
module: `args` flags and their checks · `distributed` ranks under torchrun · `envs` building envs
and counting episodes · `encoding` observations as tensors, RND's whitening · `rundir`,
`checkpoint` and `log` what is on disk · `run` composes these · `signals` stopping · `progress` how
far and how fast · `acting` and `minibatches` few copies between host and device · `metrics` and
`gradients` numbers and their limits · `play` one episode.
"""
