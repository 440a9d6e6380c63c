"""One Hypothesis profile for every test: repeatable, and patient with slow exact arithmetic."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "lunette",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("lunette")
