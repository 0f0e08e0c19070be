"""A stand-in for YARN: a ``spark-submit`` that starts the driver apart, and the REST API of a resource manager.

Neither is YARN: an application is the step's entry as a process of this machine, with a Spark of its own. It outlives
the task that has submitted it, as a driver on a cluster does, and it can be held in the queue.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: It is called with the options of spark-submit, then the entry and its arguments.
_SUBMIT = """#!{python}
import os, subprocess, sys
from pathlib import Path

words = sys.argv[1:]
entry = next(at for at, word in enumerate(words) if word.endswith(".py"))
folder = Path({folder!r})
number = 1 + len(list(folder.glob("application_*")))
application = folder / f"application_1700000000000_{{number:04d}}"
application.mkdir()
(application / "words").write_text("\\n".join(words))
held = '''
while [ -e "$1" ]; do sleep 0.05; done
shift
"$@"
echo $? >exit.draft
mv exit.draft exit
'''
command = ["sh", "-c", held, "sh", str(folder / "hold"), sys.executable, *words[entry:]]
with (application / "log").open("wb") as log:
    driver = subprocess.Popen(
        command, cwd=application, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
(application / "pid").write_text(str(driver.pid))
print(f"INFO YarnClientImpl: Submitted application {{application.name}}", flush=True)
"""


@dataclass(frozen=True)
class Application:
    """An application that was submitted; its driver leads a session of its own."""

    folder: Path

    @property
    def name(self) -> str:
        words = (self.folder / "words").read_text().splitlines()
        return words[words.index("--name") + 1]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def state(self) -> tuple[str, str]:
        if (self.folder / "killed").exists():
            return "KILLED", "KILLED"
        if not (self.folder / "exit").exists():
            return "RUNNING", "UNDEFINED"
        return "FINISHED", "SUCCEEDED" if (self.folder / "exit").read_text().strip() == "0" else "FAILED"

    def kill(self) -> None:
        (self.folder / "killed").touch()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.killpg(int((self.folder / "pid").read_text()), signal.SIGKILL)


@dataclass
class Yarn:
    """The stand-in: the folder of ``spark-submit`` for a PATH, and where the resource manager answers.

    Attributes:
        asked: the applications that somebody has asked for, in the order of the questions.
    """

    programs: Path
    folder: Path
    address: str
    asked: list[str] = field(default_factory=list)

    def applications(self) -> list[Application]:
        return [Application(one) for one in sorted(self.folder.glob("application_*")) if (one / "pid").exists()]

    def hold(self) -> None:
        """Start no driver until they are released; those that are submitted count as running."""
        (self.folder / "hold").touch()

    def release(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)


@contextlib.contextmanager
def stand_in_yarn(folder: Path) -> Iterator[Yarn]:
    programs, applications = folder / "programs", folder / "applications"
    for one in (programs, applications):
        one.mkdir(parents=True)
    submit = programs / "spark-submit"
    submit.write_text(_SUBMIT.format(python=sys.executable, folder=str(applications)))
    submit.chmod(0o755)
    yarn = Yarn(programs, applications, "")

    class Api(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            yarn.asked.append(name)
            state, final = Application(applications / name).state()
            self._answer({"app": {"id": name, "state": state, "finalStatus": final, "diagnostics": ""}})

        def do_PUT(self) -> None:
            wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert wanted == {"state": "KILLED"}
            Application(applications / self.path.split("/")[-2]).kill()
            self._answer(wanted)

        def _answer(self, body: dict[str, object]) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        yarn.address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield yarn
        finally:
            server.shutdown()
            for application in yarn.applications():
                application.kill()
