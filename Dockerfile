# gpuward from its lock file, without what only development needs.
FROM docker.io/library/python:3.13-slim AS build
RUN pip install --no-cache-dir uv
WORKDIR /app
COPY pyproject.toml uv.lock README.md LICENSE ./
COPY src src
COPY examples examples
RUN uv sync --locked --no-dev --no-editable

FROM docker.io/library/python:3.13-slim
COPY --from=build /app/.venv /app/.venv
USER 65532:65532
ENTRYPOINT ["/app/.venv/bin/gpuward"]
CMD ["run", "--leader-elect"]
