# Dockerfile - oneshot on Debian 12, without CUDA:
#   docker build -t oneshot .
#   docker run --rm -v "$PWD:/data" oneshot --model MODEL --scheme W4A16 --output OUT
# MODEL and OUT are below /data.
FROM debian:12 AS build
COPY . /source
WORKDIR /source
RUN scripts/install-deps.sh \
 && cmake --preset release -DOSH_TESTS=OFF -DOSH_CUDA=OFF \
 && cmake --build --preset release \
 && cd build/release && cpack -G DEB

FROM debian:12-slim
COPY --from=build /source/build/release/oneshot_*_amd64.deb /
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates /oneshot_*_amd64.deb \
 && rm -rf /var/lib/apt/lists/* /oneshot_*_amd64.deb
WORKDIR /data
ENTRYPOINT ["oneshot"]
