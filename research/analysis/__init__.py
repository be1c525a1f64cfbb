"""Turns the runs of ppo_rnd.py into compact data, statistics, figures and a report."""
