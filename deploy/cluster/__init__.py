"""The services of ``docker-compose.yml`` as processes of this machine, where no container engine is at hand."""
