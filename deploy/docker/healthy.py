"""``python healthy.py URL [COMPONENT]``: exits with 0 if a service answers that it is healthy.

Without a component any successful answer counts; with one, Airflow's health page must report it as healthy. Health
checks of containers run it, hence standard library only.
"""

import json
import sys
import urllib.request

SECONDS = 5.0


def main(url: str, component: str = "") -> int:
    """The exit code for one URL, after at most ``SECONDS``."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy is not for our own network
    try:
        with opener.open(url, timeout=SECONDS) as answer:
            said = json.load(answer) if component else {}
    except (OSError, ValueError) as err:
        sys.stderr.write(f"{url}: {err}\n")
        return 1
    status = said.get(component, {}).get("status", "not mentioned") if component else "healthy"
    if status != "healthy":
        sys.stderr.write(f"{url}: {component} is {status}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
