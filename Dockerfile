# All three binaries in one image: `dueline-relay`, `dueline-consumer`, and `dueline` for people.
#
#   docker build -t dueline .
#   docker run --rm dueline dueline --help

ARG DEBIAN=bookworm
ARG RUST=1.95

FROM rust:${RUST}-${DEBIAN} AS build
WORKDIR /src
COPY . .
# librdkafka is compiled from source; compiler, make, zlib and OpenSSL headers are in this image.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked -p dueline -p dueline-relay -p dueline-consumer \
    && install -D -t /out target/release/dueline target/release/dueline-relay \
        target/release/dueline-consumer

FROM debian:${DEBIAN}-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libssl3 zlib1g \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin dueline
COPY --from=build /out/ /usr/local/bin/
COPY LICENSE /usr/share/doc/dueline/LICENSE
USER 10001:10001
# SIGTERM asks for a clean stop; give it consumer.stop_timeout and relay.stop_timeout (15 s each).
STOPSIGNAL SIGTERM
CMD ["dueline", "--help"]
