# Name server, broker and tools in one image. `docker run -p 9876:9876 -p 10911:10911 turbopump` starts both servers.
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
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s CMD ["turbopump", "health"]
CMD ["turbopump", "up", "--data", "/data", "--host", "0.0.0.0"]
