"""`apcore-a2a explore`: the explorer's page for any agent."""

import asyncio
import sys
import webbrowser

import click
from apcore_a2a_client.agent_urls import agent_url

from apcore_a2a._parts import importing

from . import remote

EPILOG = """
The address of the page has a random token, and works only on this machine. Enter credentials in the
page: they are sent only to the agent at URL.

Exit codes: 0 interrupted, 1 wrong arguments, 2 there is no agent at URL, or the port is in use.
"""


@click.command(epilog=EPILOG)
@click.argument("url", type=remote.complete_url)
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port to listen on (default: any).",
)
@click.option("--open", "opens_browser", is_flag=True, help="Open the page in the browser.")
def explore(url: str, port: int, opens_browser: bool) -> int:
    """Show the agent at URL in the explorer, through a proxy on this machine."""
    with importing("explorer", "apcore-a2a explore"):
        from apcore_a2a_explorer import proxy
    agent = str(agent_url(url))
    asyncio.run(proxy.AgentProxy(agent, "").check())  # fail before the page is announced

    def announce(address: str) -> None:
        print(f"Explorer of {agent}: {address} (Ctrl+C stops it)", file=sys.stderr, flush=True)
        if opens_browser:
            webbrowser.open(address)

    proxy.explore(agent, port, announce)
    return 0
