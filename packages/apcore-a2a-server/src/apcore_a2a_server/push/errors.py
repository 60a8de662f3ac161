"""What can go wrong with a webhook.

ValueError
└── RefusedError     nothing is sent to this address; its text is safe to show to a client
    └── BusyError    its name can't be looked up now
"""


class RefusedError(ValueError):
    """The address of a webhook is none that this agent sends to."""


class BusyError(RefusedError):
    """Too many names are being looked up, for this principal or in all."""

    def __init__(self) -> None:
        super().__init__("The webhook's host can't be looked up now; try again later")
