# The image of ibex: the binary, the C library it was linked with, the certificates it trusts, and nothing else. No shell, no package
# manager. It runs as 65532, and all it writes is under /var/lib/ibex.
#
#   docker build --build-arg REVISION="$(git rev-parse HEAD)" --tag ibex:0.1.0 .
#   docker run --read-only --cap-drop ALL --security-opt no-new-privileges -p 127.0.0.1:8080:8080 -v ibex:/var/lib/ibex --env-file .env ibex:0.1.0
#
# A tag can be moved, a digest cannot. Look it up once and pass it, and the build can be repeated:
#
#   docker buildx imagetools inspect rust:1.95.0-slim-bookworm --format '{{.Manifest.Digest}}'
#   docker build --build-arg RUST_DIGEST=@sha256:... ...

ARG RUST_VERSION=1.95.0-slim-bookworm
ARG RUST_DIGEST=

FROM rust:${RUST_VERSION}${RUST_DIGEST} AS build

# Features beside the default ones, such as onnx.
ARG FEATURES=
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY benches benches
COPY src src
# The target folder is a cache that outlives this step and is in no layer, so the binary is copied out of it. Cargo goes by the time of a
# file, which in a build context may be older than the cache: touched, the crate is always compiled from what is here.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,sharing=locked \
    touch src/lib.rs src/main.rs \
    && CARGO_INCREMENTAL=0 cargo build --release --locked --bin ibex --features "${FEATURES}" \
    && install -D -m 0755 target/release/ibex /image/usr/local/bin/ibex

# What it needs at run time: the loader and the libraries that it names, certificates, and names for two accounts. The packages that these
# come from are recorded where scanners of images look, with their licences.
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
RUN ldd /image/usr/local/bin/ibex | grep -o '/[^ ]*' > /libraries; \
    xargs dpkg-query --search < /libraries | cut -d: -f1 | sort -u > /packages; \
    echo ca-certificates >> /packages; \
    xargs cp --parents --dereference --target-directory /image /etc/ssl/certs/ca-certificates.crt /etc/os-release < /libraries; \
    mkdir -p /image/var/lib/dpkg/status.d /image/etc/ibex; \
    while read -r package; do \
      dpkg-query --status "${package}" > "/image/var/lib/dpkg/status.d/${package}"; \
      install -D -m 0644 "/usr/share/doc/${package}/copyright" "/image/usr/share/doc/${package}/copyright"; \
    done < /packages; \
    printf '%s\n' 'root:x:0:0:root:/:/sbin/nologin' 'ibex:x:65532:65532:ibex:/var/lib/ibex:/sbin/nologin' > /image/etc/passwd; \
    printf '%s\n' 'root:x:0:' 'ibex:x:65532:' > /image/etc/group; \
    printf '%s\n' 'hosts: files dns' > /image/etc/nsswitch.conf; \
    install -d -m 0700 /state/ibex
# Files of a checkout have the modes of whoever made it.
COPY --chmod=0644 LICENSE /image/usr/share/doc/ibex/copyright

FROM scratch

ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="ibex" \
      org.opencontainers.image.description="An OpenAI-compatible reverse proxy that gives agents memory" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"

COPY --from=build /image /
# A new volume takes over owner and mode from here.
COPY --from=build --chown=65532:65532 /state /var/lib

# production refuses plain http to anything but this machine; IBEX_ENV=development allows it. A configuration mounted as
# /etc/ibex/ibex.toml is read without being named.
ENV IBEX_ENV=production \
    IBEX_SERVER__LISTEN=0.0.0.0:8080 \
    IBEX_STORE__PATH=/var/lib/ibex/ibex.db \
    IBEX_LOG__FORMAT=json
WORKDIR /etc/ibex
VOLUME /var/lib/ibex
EXPOSE 8080
USER 65532:65532
# The server finishes what is open within server.drain_timeout_ms (30 s): stop it with a longer grace period.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 CMD ["/usr/local/bin/ibex", "health"]
ENTRYPOINT ["/usr/local/bin/ibex"]
CMD ["serve"]
