"""`apcore-a2a webhooks secret`: the secret that receivers verify push notifications with."""

import click
from apcore_a2a_server.fields import OptionError

from .options import (
    OPTIONS,
    CommandConfigurationError,
    OptionsCommand,
    as_written,
    flags,
    warn_about_secrets,
)
from .store import print_line

EPILOG = """
As with `serve`, options can also be set by environment variables (APCORE_A2A_PUSH_SECRETS) or in
the config file.

Exit codes: 0 success, 1 wrong arguments or no secret.
"""


@click.command(
    cls=OptionsCommand,
    params=[click.Argument(["url"], metavar="URL"), *flags("push_secrets")],
    epilog=EPILOG,
)
@click.pass_context
def secret(ctx: click.Context, url: str, push_secrets: list[str] | None) -> int:
    """Print the secret that verifies notifications to URL.

    The secret is the same for all URLs with this scheme, host and port. If several secrets
    are set, as during a rotation, the command prints the first, which should be the newest.
    """
    from apcore_a2a_server.push.signing import Signer  # slow to import

    try:
        signer = Signer(push_secrets or ())
    except OptionError as error:
        written_name = as_written(ctx, "push_secrets")
        raise CommandConfigurationError(f"{written_name} {error.problem}") from None
    secrets = signer.secrets(url)
    if not secrets:
        variable = OPTIONS["push_secrets"].variable
        raise ValueError(f"No secret for this URL: set {variable} to the same value as for serve")
    warn_about_secrets()
    print_line(secrets[0])
    return 0
