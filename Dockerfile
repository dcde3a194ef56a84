# The image of `./dev image` for those who build with docker: the same packages, the same wheels, the same files, by the same code.
# The result starts from nothing; BASE only builds it, and may be any Debian 12 or later. Pin it to what you have checked:
#   docker build --build-arg BASE=docker.io/library/debian:trixie-slim@sha256:... --label org.opencontainers.image.revision=$(git rev-parse HEAD) .
ARG BASE=docker.io/library/debian:trixie-slim
FROM ${BASE} AS build
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates git mmdebstrap python3 python3-venv
WORKDIR /src
COPY . .
RUN ./dev image --out /out --unpack /image

FROM scratch
LABEL org.opencontainers.image.title=gpuward org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /image /
ENV PATH=/usr/bin LC_ALL=C.UTF-8
WORKDIR /
USER 65532:65532
ENTRYPOINT ["/usr/bin/gpuward"]
CMD ["run", "--leader-elect"]
