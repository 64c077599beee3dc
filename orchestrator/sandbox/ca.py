"""The host's CA bundle: networks that re-sign TLS need it inside builds and resolving containers.

Found by itself, mounted or given as a build secret, never part of an image.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import certifi

FROM_ENVIRONMENT = ("ORCH_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT")
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
READ_BY_CLIENTS = (
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
)
PROXIES = ("http_proxy", "https_proxy", "no_proxy")


def bundle(environ: Mapping[str, str] = os.environ) -> Path:
    """The bundle the host's own clients use: a variable's, else the system's, else certifi's."""
    named = [environ[name] for name in FROM_ENVIRONMENT if environ.get(name)]
    for candidate in map(Path, (*named, *SYSTEM_BUNDLES)):
        # Empty is what Compose mounts where no bundle was given.
        if candidate.is_file() and candidate.stat().st_size:
            return candidate
    return Path(certifi.where())


def client_environment(path_inside: str) -> dict[str, str]:
    """Variables by which pip, uv, npm and git inside a container find the bundle at that path."""
    return dict.fromkeys(READ_BY_CLIENTS, path_inside)


def proxies(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The host's proxy settings under their lower-case names; empty where there are none."""
    found = {name: environ.get(name) or environ.get(name.upper()) for name in PROXIES}
    return {name: value for name, value in found.items() if value}
