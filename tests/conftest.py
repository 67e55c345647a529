"""Settings of all tests."""

import os

from hypothesis import settings

# Tests run on loaded machines: how long an example takes proves nothing. Continuous integration draws the
# same examples each time, so that it fails for what was changed; everyone else draws new ones.
settings.register_profile("simsched", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("simsched")
