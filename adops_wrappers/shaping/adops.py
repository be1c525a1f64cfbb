"""ADOPS and ADOPES: a bonus that may not contradict the critic's extrinsic advantage."""

from __future__ import annotations

from typing import Any

from typing_extensions import Unpack

from adops_wrappers import _checks
from adops_wrappers.backends import at_least, at_most, kept, namespace
from adops_wrappers.critic import AnyCritic
from adops_wrappers.methods import Method, declare
from adops_wrappers.shaper import FloatArray, Shaper, Transition
from adops_wrappers.shaping.conflict import advantages, is_bad
from adops_wrappers.shaping.schedule import Scheduled, UpdateCounter, UpdateEvery
from adops_wrappers.wrappers.named import CriticSettings, wrapper_of


def adops_correction(
    transition: Transition,
    *,
    gamma_ext: float,
    gamma_int: float,
    ext_coef: float,
    int_coef: float,
    epsilon: float,
    tie_tolerance: float,
) -> FloatArray:
    """Return F₂ of eq. f_2_weak as a clamp of the total advantage.

    Ω of eq. o_eq is minus the total c_E·A_E + c_I·δ_I of `conflict.advantages`. Adding c_I·F₂
    moves the total to at most −ε where A_E < −tie_tolerance, and to at least 0 elsewhere; where
    it is there already, F₂ = 0.
    """
    advantage_ext, total = advantages(
        transition,
        gamma_ext=gamma_ext,
        gamma_int=gamma_int,
        ext_coef=ext_coef,
        int_coef=int_coef,
    )
    bad = is_bad(advantage_ext, tie_tolerance)
    clamped = namespace(total).where(bad, at_most(total, -epsilon), at_least(total, 0.0))
    correction: FloatArray = clamped - total
    return correction if int_coef == 1.0 else correction / int_coef


class ADOPS(Shaper):
    """F′ = F + F₂, F₂ being the least change that keeps the sign of the extrinsic advantage.

    With a critic of the current policy this is eq. f_2_weak; with an oracle critic and
    `tie_tolerance=1e-9` it is the ideal form, eq. f_2_strong.
    """

    name = "ADOPS"
    keeps_state = False
    described = ("gamma_ext", "gamma_int")

    def __init__(
        self,
        num_envs: int = 1,
        *,
        epsilon: float = 1e-7,
        tie_tolerance: float = 0.0,
        allow_gamma_int_above_ext: bool = False,
        gamma_ext: float = 0.999,
        gamma_int: float = 0.99,
        ext_coef: float = 1.0,
        int_coef: float = 1.0,
    ) -> None:
        super().__init__(num_envs)
        self.gamma_ext = _checks.discount("gamma_ext", gamma_ext)
        self.gamma_int = _checks.discount("gamma_int", gamma_int)
        self.ext_coef = _checks.positive("ext_coef", ext_coef)
        self.int_coef = _checks.positive("int_coef", int_coef)
        self.epsilon = _checks.non_negative("epsilon", epsilon)
        self.tie_tolerance = _checks.non_negative("tie_tolerance", tie_tolerance)
        self.allow_gamma_int_above_ext = bool(allow_gamma_int_above_ext)
        if self.gamma_int > self.gamma_ext and not allow_gamma_int_above_ext:
            raise ValueError(
                f"gamma_int={self.gamma_int} is above gamma_ext={self.gamma_ext}: the shaped task "
                "can then have other optimal policies from the start state. Choose gamma_int <= "
                "gamma_ext, or insist with allow_gamma_int_above_ext=True."
            )

    @property
    def discounts(self) -> tuple[float, float]:
        """γ_E and γ_I."""
        return self.gamma_ext, self.gamma_int

    def step(self, transition: Transition) -> FloatArray:
        """Return F + ζ·F₂ with ζ = 1."""
        correction = adops_correction(
            transition,
            gamma_ext=self.gamma_ext,
            gamma_int=self.gamma_int,
            ext_coef=self.ext_coef,
            int_coef=self.int_coef,
            epsilon=self.epsilon,
            tie_tolerance=self.tie_tolerance,
        )
        if (zeta := self.zeta) != 1.0:
            correction = zeta * correction
        shaped = transition.intrinsic + correction
        return kept(shaped, transition.valid)  # type: ignore[no-any-return]


class ADOPES(Scheduled, ADOPS):
    """F′ = F + ζ_n·F₂, ζ_n = min(1, n/C) rising from 0 to 1 over C = `ramp_updates`.

    ζ = 0 is the raw bonus and ζ = 1 is ADOPS, exactly.
    """

    name = "ADOPES"
    keeps_state = True
    state_depends_on = ("ramp_updates", "update_every")

    def __init__(
        self,
        num_envs: int = 1,
        *,
        ramp_updates: int = 15000,
        update_every: UpdateEvery = 128,
        **adops: Any,
    ) -> None:
        super().__init__(num_envs, **adops)
        self.ramp_updates = _checks.whole("ramp_updates", ramp_updates, least=1)
        self.counter = UpdateCounter(update_every)

    def zeta_after(self, updates: int) -> float:
        """Return ζ_n, rising from 0 to 1."""
        return min(1.0, updates / self.ramp_updates)

    def step(self, transition: Transition) -> FloatArray:
        """Return F + ζ·F₂, then count the step."""
        shaped = super().step(transition)
        self.count(transition)
        return shaped


_CLAMP: dict[str, Any] = {"needs_critic": True, "clamps": True}
_RAMP: dict[str, Any] = {**_CLAMP, "schedule": ("ramp_updates", "update_every")}
declare(Method("adops", "ADOPS", ADOPS, **_CLAMP))
declare(Method("adopes", "ADOPES", ADOPES, **_RAMP))
declare(Method("adopes-half", "ADOPES F/2", ADOPES, intrinsic_scale=0.5, **_RAMP))


class ADOPSSettings(CriticSettings, total=False):
    """What the clamp of ADOPS takes, in ADOPES too.

    Args:
        gamma_ext: γ_E.
        gamma_int: γ_I, at most γ_E.
        ext_coef: c_E, the weight of the extrinsic advantage in the agent's policy loss.
        int_coef: c_I, the weight of the intrinsic one.
        epsilon: ε, the margin by which a bad action must stay bad.
        tie_tolerance: A_E above minus this counts as not negative; 1e-9 for exact critics.
        allow_gamma_int_above_ext: Accept γ_I > γ_E, which loses the guarantee.
    """

    gamma_ext: float
    gamma_int: float
    ext_coef: float
    int_coef: float
    epsilon: float
    tie_tolerance: float
    allow_gamma_int_above_ext: bool


@wrapper_of("adops")
def ADOPSWrapper(env: Any, critic: AnyCritic, **settings: Unpack[ADOPSSettings]) -> None:
    """F′ = F + F₂: the least change of F that keeps the sign of the extrinsic advantage.

    - A_E = R + γ_E·V_E(s′) − V_E(s), or Q_E(s, a) − V_E(s) where the critic gives Q values.
    - δ_I = F + γ_I·V_I(s′) − V_I(s).
    - The total is c_E·A_E + c_I·δ_I. Adding c_I·F₂ clamps it to at most −ε where A_E is negative,
      and to at least 0 elsewhere (eq. f_2_weak of the paper).

    Args:
        env: The env, with a source of F below.
        critic: A `CriticHandle`, or a function obs -> (value_ext, value_int[, q_ext]), where
            V_I is the value of the shaped stream F′.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import ADOPSWrapper, IntrinsicRewardWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 0.5)
        >>> env = ADOPSWrapper(env, lambda obs: (0.0, 0.0))
        >>> _ = env.reset(seed=0)
        >>> info = env.step(0)[4]  # R = -1 and F = 0.5: the total -0.5 has the right sign
        >>> print(info["intrinsic_reward"], info["shaping_correction"])
        0.5 0.0

        The same for a vector env: R = -1, and the second bonus is cut to 0.9.

        >>> import numpy as np
        >>> critic = lambda obs: (np.zeros(2), np.zeros(2))
        >>> env = gym.make_vec("CliffWalking-v1", num_envs=2)
        >>> env = IntrinsicRewardWrapper(env, lambda s, a, next_s: np.array([0.5, 3.0]))
        >>> env = ADOPSWrapper(env, critic, epsilon=0.1)
        >>> _ = env.reset(seed=0)
        >>> env.step(np.array([0, 0]))[4]["intrinsic_reward"]
        array([0.5, 0.9])
    """


@wrapper_of("adopes")
def ADOPESWrapper(
    env: Any,
    critic: AnyCritic,
    *,
    ramp_updates: int = 15000,
    update_every: UpdateEvery = 128,
    **settings: Unpack[ADOPSSettings],
) -> None:
    """F′ = F + ζ·F₂ with the F₂ of `ADOPSWrapper` and ζ rising from 0 to 1.

    The agent explores on the raw bonus first, while its critic is still poor.

    Args:
        env: The env, with a source of F below.
        critic: A `CriticHandle`, or a function obs -> (value_ext, value_int[, q_ext]), where
            V_I is the value of the shaped stream F′.
        ramp_updates: The number of updates after which ζ is 1.
        update_every: The number of steps between two updates, or "episode" to count episodes.

    Example:
        >>> import gymnasium as gym
        >>> from adops_wrappers import ADOPESWrapper, IntrinsicRewardWrapper
        >>> env = IntrinsicRewardWrapper(gym.make("CliffWalking-v1"), lambda s, a, next_s: 2.0)
        >>> critic = lambda obs: (0.0, 0.0)
        >>> env = ADOPESWrapper(env, critic, epsilon=0.0, ramp_updates=2, update_every=1)
        >>> _ = env.reset(seed=0)
        >>> [float(env.step(0)[4]["intrinsic_reward"]) for _ in range(3)]  # ADOPS would give 1.0
        [2.0, 1.5, 1.0]
    """
