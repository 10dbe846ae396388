# A whole Penstock in one container: `docker run -p 9700:9700 -p 9701:9701 -v penstock:/var/lib/penstock IMAGE`.
# See docs/deployment.md. The first stage compiles, the second one has neither compiler nor sources.
FROM python:3.11-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc g++ libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
RUN python -m venv /opt/penstock
COPY requirements requirements
RUN /opt/penstock/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt -r requirements/core.txt
COPY . .
RUN /opt/penstock/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim-bookworm
RUN useradd --system --create-home --home-dir /var/lib/penstock --shell /usr/sbin/nologin penstock
COPY --from=build /opt/penstock /opt/penstock
ENV PATH=/opt/penstock/bin:$PATH PENSTOCK_DATA=/var/lib/penstock/data
USER penstock
VOLUME /var/lib/penstock
# Only the proxies listen on all addresses: engine, operators' pages and console stay on the container's loopback.
EXPOSE 9700 9701
# Exit code 0 only if every process is ready.
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s CMD ["penstock", "status"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["penstock"]
CMD ["up", "--listen-host", "0.0.0.0", "--ports", "9700"]
