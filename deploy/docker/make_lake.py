"""``python make_lake.py``: makes the bucket of the object store and the database of its catalog, if they are missing.

Both are named in the environment of ``docker-compose.yml``. The catalog has a user of its own, who may not connect to
Airflow's database, and who has the password of the environment from then on.
"""

import os
import sys
from urllib.parse import SplitResult, urlsplit

import psycopg
from psycopg import sql
from pyarrow.fs import S3FileSystem


def main() -> int:
    """Make both."""
    bucket = urlsplit(os.environ["PYICEBERG_CATALOG__LAKE__WAREHOUSE"]).netloc
    endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    store = S3FileSystem(endpoint_override=endpoint.netloc, scheme=endpoint.scheme, allow_bucket_creation=True)
    store.create_dir(bucket)  # unless it is there; credentials are in the environment
    catalog = urlsplit(os.environ["PYICEBERG_CATALOG__LAKE__URI"])
    make_database(os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"], catalog)
    sys.stderr.write(f"bucket {bucket} and database {catalog.path[1:]} are there\n")
    return 0


def make_database(owner: str, wanted: SplitResult) -> None:
    """Make a database and its user, unless they are there, from the address that has the user's password.

    The owner's address is that of the server's first database, with the user who may make others.
    """
    name, user, password = wanted.path[1:], wanted.username or "", wanted.password or ""
    with psycopg.connect(owner.replace("+psycopg", "", 1), autocommit=True) as connection:
        # As the server would keep it: a statement may be in a log.
        verifier = connection.pgconn.encrypt_password(password.encode(), user.encode(), b"scram-sha-256").decode()
        known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [user]).fetchone()
        verb = sql.SQL("ALTER" if known else "CREATE")
        role = sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(verb, sql.Identifier(user), sql.Literal(verifier))
        connection.execute(role)
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            made = sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(user))
            connection.execute(made)
        first = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("REVOKE CONNECT ON DATABASE {} FROM PUBLIC").format(first))


if __name__ == "__main__":
    sys.exit(main())
