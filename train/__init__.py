"""Training scripts: each runs on its own, and is imported as `from train import ppo_rnd`."""
