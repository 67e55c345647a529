"""Settings of all tests."""

from hypothesis import settings

# tests run on loaded machines: how long an example takes proves nothing
settings.register_profile("simsched", deadline=None)
settings.load_profile("simsched")
