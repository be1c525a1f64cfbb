"""Writes the per-method scripts from ppo_rnd.py: the same file with another wrapper stack.

Run `python train/make_scripts.py` after every change of ppo_rnd.py; `--check` only says whether
the scripts are up to date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
SOURCE = FOLDER / "ppo_rnd.py"

CLAMP = ("epsilon", "tie_tolerance", "clamp_ext_coef", "clamp_int_coef")
NORMALIZE = '''    normalize: bool = False
    """subtract the running mean of F before shaping"""
'''
CLAMP_SETTINGS = """\
        gamma_ext=args.gamma_ext,
        gamma_int=args.gamma_int,
        ext_coef=args.clamp_ext_coef,
        int_coef=args.clamp_int_coef,
        epsilon=args.epsilon,
        tie_tolerance=args.tie_tolerance,
        allow_gamma_int_above_ext=args.allow_gamma_int_above_ext,
        int_bootstrap=args.int_bootstrap,
"""
SCHEDULE = '''

def schedule_length(args: Args) -> int:
    """Return the number of iterations over which zeta moves."""
    return args.schedule_iterations or max(1, args.total_iterations // 2)
'''


class Method(NamedTuple):
    """What a script needs beside the common text."""

    wrapper: str
    flags: tuple[str, ...]
    settings: str
    extra_flags: str = ""
    extra_code: str = ""
    about: str = ""


METHODS = {
    "adops": Method("ADOPSWrapper", (*CLAMP, "allow_gamma_int_above_ext"), CLAMP_SETTINGS),
    "adopes": Method(
        "ADOPESWrapper",
        (*CLAMP, "allow_gamma_int_above_ext", "schedule_iterations"),
        "        ramp_updates=schedule_length(args),\n        update_every=args.num_steps,\n"
        + CLAMP_SETTINGS,
        extra_code=SCHEDULE,
        about="; 0.5 is the paper's F/2 run",
    ),
    "pies": Method(
        "PIESWrapper",
        ("schedule_iterations",),
        "        decay_updates=schedule_length(args),\n        update_every=args.num_steps,\n",
        extra_code=SCHEDULE,
    ),
    "pbim": Method(
        "PBIMWrapper",
        ("alpha",),
        "        gamma=args.gamma_int,\n        normalize=args.normalize,\n"
        "        alpha=args.alpha,\n",
        extra_flags=NORMALIZE,
    ),
    "grm": Method(
        "GRMWrapper",
        ("delay", "alpha"),
        "        delay=args.delay,\n        gamma=args.gamma_int,\n"
        "        normalize=args.normalize,\n        alpha=args.alpha,\n",
        extra_flags=NORMALIZE,
    ),
    "guarded": Method(
        "GuardedScaleWrapper",
        ("balance",),
        "        balance=args.balance,\n        gamma_ext=args.gamma_ext,\n"
        "        gamma_int=args.gamma_int,\n        ext_coef=args.ext_coef,\n"
        "        int_coef=args.int_coef,\n        int_bootstrap=args.int_bootstrap,\n"
        "        update_every=args.num_steps,\n",
    ),
}

STACK = '''def method_name(args: Args) -> str:
    """Return the name of this run's method."""
    return "{name}"


def check_method_flags(args: Args) -> None:
    """Every flag of this script belongs to its method."""


def wrap_stack(
    args: Args,
    envs: VectorEnv,
    source: Any,
    normalizer: IntrinsicReturnNormalizer | None,
    critic: CriticHandle,
) -> Any:
    """Put the source of F and the shaping method on top of the envs."""
    envs = IntrinsicRewardWrapper(envs, source, normalizer=normalizer)
    return {wrapper}(
        envs,
        critic=critic,
        intrinsic_scale=args.intrinsic_scale,
        add_to_reward=False,
{settings}    )
{extra}

'''


def block(text: str, label: str) -> tuple[int, int]:
    """Return where the marked block's content starts and ends."""
    start, end = f"# --- wrapper stack{label}\n", f"# --- end of wrapper stack{label}\n"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"{SOURCE.name} must hold {start!r} and {end!r} exactly once each.")
    return text.index(start) + len(start), text.rindex("\n", 0, text.index(end)) + 1


def replace_block(text: str, label: str, content: str) -> str:
    """Return the text with the content of one marked block exchanged."""
    start, end = block(text, label)
    return text[:start] + content + text[end:]


def flag(text: str, name: str) -> str:
    """Return the lines that define a flag, help included."""
    found = re.search(rf'    {name}: .*?"""\n', text, re.DOTALL)
    if found is None:
        raise ValueError(f"{SOURCE.name} has no flag {name}.")
    # A field ends with the closing quotes of its help text.
    return re.sub(r'(?m)^(    """)(?:[a-z-]+(?:, [a-z-]+)*): ', r"\1", found.group())


def make_script(source: str, name: str) -> str:
    """Return the script of one method."""
    method = METHODS[name]
    common = ("CountBonus", "CriticHandle", "IntrinsicReturnNormalizer", "IntrinsicRewardWrapper")
    imports = sorted((*common, method.wrapper), key=lambda item: (item != item.upper(), item))
    scale = re.sub(r" \(adopes-half [^)]*\)", method.about, flag(source, "intrinsic_scale"))
    flags = scale + method.extra_flags + "".join(flag(source, name) for name in method.flags)
    stack = STACK.format(
        name=name,
        wrapper=method.wrapper,
        settings=method.settings,
        extra=method.extra_code,
    )
    text = replace_block(
        source,
        ": imports",
        "from adops_wrappers import (\n" + "".join(f"    {i},\n" for i in imports) + ")\n\n",
    )
    text = replace_block(text, ": flags", flags)
    return replace_block(text, "", stack)


def main() -> None:
    """Write the scripts, or with --check compare them."""
    source = SOURCE.read_text()
    stale = []
    for name in METHODS:
        path, text = FOLDER / f"ppo_rnd_{name}.py", make_script(source, name)
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.exit(f"{', '.join(stale)} out of date: run python train/make_scripts.py")


if __name__ == "__main__":
    main()
