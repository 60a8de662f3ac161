"""An nginx process with the site configuration of the examples."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.facade.processes import free_port, process

from .replicas import Agent, Replica

FOLDER = Path(__file__).parents[2] / "examples" / "deployment"
PROGRAM = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
CONFIG = """
daemon off;
master_process off;
pid {home}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {home}/bodies;
    proxy_temp_path {home}/answers;
    fastcgi_temp_path {home}/unused;
    uwsgi_temp_path {home}/unused;
    scgi_temp_path {home}/unused;
    {site}
}}
"""


@contextmanager
def behind_nginx(home: Path, *replicas: Replica) -> Iterator[Agent]:
    """Run nginx in front of *replicas* and yield the agent that clients see."""
    assert PROGRAM is not None
    port = free_port()
    site = (FOLDER / "nginx.conf").read_text().replace("listen 80;", f"listen 127.0.0.1:{port};")
    upstreams = (FOLDER / "replicas.conf").read_text()
    for number, replica in enumerate(replicas, 8001):
        upstreams = upstreams.replace(f"127.0.0.1:{number}", urlsplit(replica.url).netloc)
    config = home / "nginx.conf"
    config.write_text(CONFIG.format(home=home, site=upstreams + site))
    command = [PROGRAM, "-p", str(home), "-c", str(config), "-e", "stderr"]
    with process(command, home) as nginx:
        agent = Agent(f"http://127.0.0.1:{port}", home)
        nginx.wait_for_card(agent.url)
        with agent.client:
            yield agent
