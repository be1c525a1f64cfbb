"""Error texts that more than one module needs."""

INTRINSIC_MISSING = (
    "info has no 'intrinsic_reward' to shape. Put a source of F below this wrapper: "
    "IntrinsicRewardWrapper(env, source) with source(obs, action, next_obs) -> F, or an env that "
    "writes info['intrinsic_reward'] itself."
)
