"""The store in Redis: one hash holds all rows, and a script makes each write conditional.

A field's value is ``VERSION newline VALUE``. The version is drawn by the writer, so that a write
whose answer was lost, and that the client sends again, is recognized as its own. Redis has to keep
what it has acknowledged (``appendonly yes``): if it comes back with older tables, fencing numbers
are given out a second time.
"""

from __future__ import annotations

import secrets
from typing import Any, cast
from urllib.parse import urlsplit

from skewless_leases.errors import StoreError
from skewless_leases.stores.store import Versioned

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:
    raise StoreError.saying(
        "leases in Redis", "the package redis is not installed", "install skewless[redis]"
    ) from None

_PUT = """
local row = redis.call('HGET', KEYS[1], ARGV[1])
local version = row and string.match(row, '^[^\\n]*') or ''
if version == ARGV[3] then return 1 end
if version ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3] .. '\\n' .. ARGV[4])
return 1
"""

_DELETE = """
local row = redis.call('HGET', KEYS[1], ARGV[1])
if not row or string.match(row, '^[^\\n]*') ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
"""


class RedisStore:
    """A KeyValueStore in Redis.

    Args:
        address: ``redis://HOST:PORT/DB#NAME``, or ``rediss://`` or ``unix://`` alike; NAME keeps several
            sets of leases apart, and is ``leases`` if not given.
        answer_seconds: a server that does not answer for this long counts as gone, for this call.
    """

    def __init__(self, address: str, *, answer_seconds: float) -> None:
        url, _, name = address.partition("#")
        self._hash = f"skewless:{name or 'leases'}"
        try:
            parts = urlsplit(url)
            #: Without user and password.
            self.where = (
                f"store {parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
            )
            self._client = redis.Redis.from_url(
                url,
                socket_timeout=answer_seconds,
                socket_connect_timeout=answer_seconds,
                # Once more at once, for a connection that has been closed since the last call. Whoever beats
                # or looks calls again anyway, and must not wait for growing pauses in between.
                retry=Retry(NoBackoff(), 1),
            )
        except ValueError:  # whose words may hold a part of the password
            hint = "write redis://HOST:PORT/DB#NAME, with a user and a password percent-encoded"
            where = f"store {url.partition(':')[0]}"
            raise StoreError(where, "an address of Redis", "one that cannot be read", hint) from None

    def get(self, key: str) -> Versioned | None:
        """The value of a key, or None."""
        row = self._asked("hget", self._hash, key)
        return None if row is None else _versioned(row)

    def put(self, key: str, value: bytes, expected: str | None) -> str | None:
        """Write if the key still has that version; the new version, or None."""
        version = secrets.token_hex(12)
        return version if self._asked("eval", _PUT, 1, self._hash, key, expected or "", version, value) else None

    def delete(self, key: str, expected: str) -> bool:
        """Remove if the key still has that version."""
        return bool(self._asked("eval", _DELETE, 1, self._hash, key, expected))

    def scan(self, prefix: str) -> dict[str, Versioned]:
        """All keys that begin so."""
        rows = cast("dict[bytes, bytes]", self._asked("hgetall", self._hash))
        found = {key.decode(): row for key, row in rows.items()}
        return {key: _versioned(row) for key, row in found.items() if key.startswith(prefix)}

    def _asked(self, command: str, *arguments: object) -> Any:
        try:
            return getattr(self._client, command)(*arguments)
        except redis.RedisError as err:
            raise StoreError(self.where, "an answer of Redis", str(err) or type(err).__name__) from None


def _versioned(row: bytes) -> Versioned:
    version, _, value = row.partition(b"\n")
    return Versioned(value, version.decode())
