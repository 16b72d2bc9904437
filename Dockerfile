# Name server, broker and tools in one image. For clients on this machine:
#   docker run -p 9876:9876 -p 10911:10911 -p 10909:10909 -e TURBOPUMP_BROKER_IP1=127.0.0.1 turbopump
# TURBOPUMP_BROKER_IP1 is the address that clients are told: for other machines, this machine's address. Without it they are told the
# container's own, which only clients in the same container network reach.
# Built where there is a compiler, for the compiled send path; run where there is none.
FROM python:3.13 AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY packaging packaging
COPY src src
RUN pip install --no-cache-dir --root-user-action=ignore --prefix=/install ".[fast]"

FROM python:3.13-slim
COPY --from=build /install /usr/local
RUN useradd --create-home --uid 3000 turbopump && install -d -o turbopump /data
USER turbopump
WORKDIR /data
VOLUME /data
# Logs go to the terminal, where containers are read.
ENV TURBOPUMP_LOG_DIR=- PYTHONUNBUFFERED=1
EXPOSE 9876 10911 10909
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["turbopump", "health", "127.0.0.1:9876", "127.0.0.1:10911"]
CMD ["turbopump", "up", "--data", "/data", "--host", "0.0.0.0"]
