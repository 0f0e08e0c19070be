"""Steps as clients of a Spark Connect server, and the local server."""
