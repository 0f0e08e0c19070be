"""A Hive metastore: the one of Spark's own jars, on a database of Derby.

``python -m tests.lake.hive_catalog FOLDER`` serves one until its standard input ends.
"""

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.lake.java_server import java, port_of

_SETTINGS = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:{folder}/metastore;create=true",
    "hive.metastore.warehouse.dir": "{folder}/tables",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    # Of the pools that it knows, Spark has this one.
    "datanucleus.connectionPoolingType": "hikaricp",
    "hive.async.log.enabled": "false",
    # A thread serves a client for as long as that is connected.
    "hive.metastore.server.min.threads": "40",
}


def serve(folder: Path) -> None:
    """Print the port, and serve until standard input ends."""
    (folder / "hive-site.xml").write_text(
        "<configuration>"
        + "".join(
            f"<property><name>{name}</name><value>{value.format(folder=folder)}</value></property>"
            for name, value in _SETTINGS.items()
        )
        + "</configuration>"
    )
    # Datanucleus looks into classes of the JDK.
    options = [f"--add-opens=java.base/java.{one}=ALL-UNNAMED" for one in ("lang", "net", "util")]
    classes = java(str(folder), options=[*options, f"-Dderby.stream.error.file={folder}/derby.log"])
    hive = classes.org.apache.hadoop.hive
    settings = hive.conf.HiveConf()
    hive.metastore.txn.TxnDbUtil.prepDb(settings)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    thrift = hive.shims.ShimLoader.getHadoopThriftAuthBridge()
    threading.Thread(
        target=hive.metastore.HiveMetaStore.startMetaStore, args=(port, thrift, settings), daemon=True
    ).start()
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            break
        time.sleep(0.1)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    sys.stdin.read()


@contextmanager
def hive_catalog(folder: Path) -> Iterator[str]:
    with port_of("tests.lake.hive_catalog", folder) as port:
        yield f"thrift://127.0.0.1:{port}"


def of_hive(address: str) -> dict[str, str]:
    catalog = "PYICEBERG_CATALOG__HIVE__"
    return {f"{catalog}URI": address, f"{catalog}HIVE__HIVE2_COMPATIBLE": "true"}


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
