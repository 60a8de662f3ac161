"""What can go wrong with a webhook.

ValueError
└── RefusedError     nothing is sent to this address; its text is safe to show to a client
"""


class RefusedError(ValueError):
    """The address of a webhook is none that this agent sends to."""
