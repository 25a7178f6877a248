# syntax=docker/dockerfile:1

# Any image with Python 3.11 or later as `python3`, with `venv`, and with Debian's apt-get serves as the base:
# `--build-arg BASE=…`. `scripts/try_image.py` uses one that it makes from Debian's packages.
ARG BASE=python:3.11-slim

# Build a wheel and an environment with it; compilers and caches stay behind in this stage. Everything that is downloaded
# must have a hash in one of the two locks. Only wheels are: an sdist would bring what builds it, without a hash.
# hadolint ignore=DL3006
FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python3 -m venv /opt/build && python3 -m venv /opt/mcpbridge
COPY requirements.lock requirements-build.lock ./
RUN /opt/build/bin/pip install --require-hashes --only-binary :all: --requirement requirements-build.lock \
    && /opt/mcpbridge/bin/pip install --require-hashes --only-binary :all: --requirement requirements.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src ./src
RUN /opt/build/bin/hatchling build --target wheel --directory /tmp/dist \
    && /opt/mcpbridge/bin/pip install --no-deps --no-index /tmp/dist/mcpbridge-*.whl \
    && /opt/mcpbridge/bin/pip check

# The image runs the bridge and Python servers. For servers that need Node (`npx …`) or uv (`uvx …`), build on top of it.
# hadolint ignore=DL3006
FROM ${BASE}
LABEL org.opencontainers.image.title="mcpbridge" \
      org.opencontainers.image.description="One MCP server in front of all of yours." \
      org.opencontainers.image.licenses="MIT"

# tini is process 1: it passes signals on and reaps what upstream servers leave behind. Its version is the base image's.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 mcpbridge \
    && useradd --uid 10001 --gid 10001 --create-home --shell /usr/sbin/nologin mcpbridge

COPY --from=build /opt/mcpbridge /opt/mcpbridge
COPY LICENSE NOTICE /usr/share/doc/mcpbridge/
ENV PATH="/opt/mcpbridge/bin:$PATH" \
    PYTHONUNBUFFERED=1 \
    MCPBRIDGE_CONFIG=/etc/mcpbridge/servers.toml

USER 10001:10001
WORKDIR /home/mcpbridge
EXPOSE 8808

# /healthz needs no token.
HEALTHCHECK --interval=30s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8808/healthz', timeout=2)"]

# A container is reached from outside, so it starts only with a token: mount a servers.toml with `[[http.tokens]]`, or
# add `--token-env VAR` to the command and pass VAR. Nothing secret is in the image.
ENTRYPOINT ["tini", "--", "mcpbridge"]
CMD ["serve", "--http", "0.0.0.0:8808"]
