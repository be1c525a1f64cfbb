"""The command line of the audit: `python -m adops_wrappers.tabular ENV --bonus … --shaping …`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import gymnasium as gym

import adops_wrappers  # noqa: F401  registers the gallery
from adops_wrappers.tabular import METHODS, FiniteMDP, audit, mdp_from_env
from adops_wrappers.tabular.auditor import verdicts
from adops_wrappers.tabular.bonuses import BONUSES, named_bonus
from adops_wrappers.tabular.keys import named_key
from adops_wrappers.tabular.plot import plot_audit

_EPILOG = """bonuses:
{bonuses}
  file.npy          a table of shape (S, A) or (S, A, S)

keys, for envs whose observation is not the whole state:
  obs,has_key       attributes of the env, "obs" being the observation
  module:function   a function (env, obs) that returns something hashable

examples:
  python -m adops_wrappers.tabular CliffWalking-v1 --bonus noisy-tv --shaping adops
  python -m adops_wrappers.tabular CliffWalking-v1 --bonus noisy-tv --all
  python -m adops_wrappers.tabular adops/KeyDoorTV-v0 --shaping raw --plot keydoor.png
  python -m adops_wrappers.tabular FrozenLake-v1 --bonus random --shaping grm --delay 1 --json
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one audit, or one per method; return 0, or 2 if the input was wrong."""
    args = _parser().parse_args(argv)
    try:
        env = _make(args.env)
        print(f"Reading {args.env} …", file=sys.stderr)
        mdp = mdp_from_env(
            env,
            args.gamma,
            key=None if args.key is None else named_key(args.key),
            max_states=args.max_states,
            accuracy=args.accuracy,
        )
        bonus = named_bonus(
            args.bonus,
            mdp,
            env.unwrapped,
            scale=args.scale,
            seed=args.seed,
            tv_state=args.tv_state,
        )
        if args.all:
            _print_table(args, mdp, bonus)
        else:
            _print_report(args, mdp, bonus)
    except (OSError, ValueError, TypeError, ImportError, gym.error.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    names = ("zeta", "delay", "epsilon", "form", "max_nodes")
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _print_report(args: argparse.Namespace, mdp: FiniteMDP, bonus: Any) -> None:
    settings = _settings(args)
    shaping = args.shaping or "adops"
    if shaping == "pbrs":
        settings["potential"] = mdp.solve().v
    report = audit(mdp, bonus, shaping, args.horizon, **settings)
    if args.plot:
        plot_audit(report, args.plot, bonus, f"{args.env}, bonus {args.bonus} × {args.scale:g}")
        print(f"Wrote {args.plot}", file=sys.stderr)
    if args.json:
        print(json.dumps({"env": args.env, "bonus": args.bonus, **report.to_dict()}, indent=2))
    else:
        print(f"{args.env}, bonus {args.bonus} × {args.scale:g}")
        print(report)


def _print_table(args: argparse.Namespace, mdp: FiniteMDP, bonus: Any) -> None:
    if args.plot or args.shaping:
        raise ValueError(
            "--all prints a table of all methods; --shaping and --plot are about a single one. "
            "Leave out either --all or the other."
        )
    answers = verdicts(
        mdp,
        bonus,
        args.horizon,
        progress=lambda text: print(text, file=sys.stderr),
        **_settings(args),
    )
    if args.json:
        table = {
            label: answer if isinstance(answer, str) else answer.to_dict()
            for label, answer in answers.items()
        }
        print(json.dumps({"env": args.env, "bonus": args.bonus, "methods": table}, indent=2))
        return
    print(f"{args.env}, bonus {args.bonus} × {args.scale:g}, gamma={args.gamma}")
    print("\n".join([*(mdp.origin.lines() if mdp.origin else []), ""]), end="")
    print(f"{'method':<26} {'optimal set':<12} {'changed states':>14} {'regret':>10}")
    for label, answer in answers.items():
        if isinstance(answer, str):
            print(f"{label:<26} not audited: {answer}")
        else:
            kept = "kept" if answer.preserved else "CHANGED"
            changed = len(answer.changed_states)
            print(f"{label:<26} {kept:<12} {changed:>14} {answer.regret:>10.4g}")


def _make(env_id: str) -> gym.Env[Any, Any]:
    if env_id.startswith("MiniGrid"):
        try:
            import minigrid  # noqa: F401  registers its envs
        except ImportError as error:
            raise ImportError(
                f"{env_id} needs minigrid. Run: pip install adops-wrappers[minigrid]"
            ) from error
    return gym.make(env_id)


def _parser() -> argparse.ArgumentParser:
    bonuses = "\n".join(f"  {name:<17} {text}" for name, text in BONUSES.items())
    parser = argparse.ArgumentParser(
        prog="python -m adops_wrappers.tabular",
        description="Does a bonus change which policies are optimal, and does a shaping method "
        "repair it? Answered exactly, on the finite MDP behind an env.",
        epilog=_EPILOG.format(bonuses=bonuses),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("env", help="a gymnasium id: a toy-text env, a gallery env, a small env")
    add("--key", metavar="STATE", help="what tells states apart, see below (the observation)")
    add("--accuracy", type=float, default=0.01, help="of sampled probabilities (%(default)s)")
    add("--bonus", default="noisy-tv", help="a name or a .npy file, see below (%(default)s)")
    add("--scale", type=float, default=1.0, help="a factor on the bonus (%(default)s)")
    add("--tv-state", type=int, help="the state with the noisy TV")
    add("--seed", type=int, default=0, help="of the random bonus (%(default)s)")
    add("--shaping", help=f"raw or one of {', '.join(METHODS)} (adops)")
    add("--all", action="store_true", help="a table of all methods instead of one report")
    add("--gamma", type=float, default=0.99, help="the discount (%(default)s)")
    add("--horizon", type=int, help="end the task after this many steps")
    add("--zeta", type=float, help="at which ADOPES, PIES and the guarded scale are held (0.5)")
    add("--delay", type=int, help="of GRM (1)")
    add("--epsilon", type=float, help="of ADOPS and ADOPES (1e-7)")
    add("--form", choices=("expected", "trajectory"), help="of ideal ADOPS (expected)")
    add("--json", action="store_true", help="print JSON")
    add("--plot", metavar="FILE", help="draw the grid before and after shaping")
    add("--max-nodes", type=int, help="size limit with histories (200000)")
    add("--max-states", type=int, default=2000, help="size limit of the env (%(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
