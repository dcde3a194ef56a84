# gpuward from its lock file, without what only development and demonstrations need.
# Pin the base image to what you have checked: docker build --build-arg BASE=docker.io/library/python:3.13-slim@sha256:...
ARG BASE=docker.io/library/python:3.13-slim
FROM ${BASE} AS build
ARG UV_VERSION=0.13.9
RUN pip install --no-cache-dir "uv==${UV_VERSION}"
WORKDIR /app
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY src src
# The lock is of the whole workspace; what it has beside gpuward is not installed.
COPY packages packages
COPY examples examples
COPY deploy deploy
# Compiled here, as the user that it runs as may not keep what Python compiles.
RUN uv sync --locked --no-dev --no-editable --compile-bytecode

FROM ${BASE}
COPY --from=build /app/.venv /app/.venv
USER 65532:65532
ENTRYPOINT ["/app/.venv/bin/gpuward"]
CMD ["run", "--leader-elect"]
