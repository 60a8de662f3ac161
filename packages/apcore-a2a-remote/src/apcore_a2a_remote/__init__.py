"""Skills of remote A2A agents as apcore modules."""

import apcore  # noqa: F401
import apcore_a2a_client  # noqa: F401
import apcore_a2a_core  # noqa: F401
