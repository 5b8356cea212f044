# Two images. The UaC server: one image for web, mcp, workers, beat and `manage.py`, by its command.
#
#   docker build --target server --tag uac-server .
#
# And everything in one container, for trying it:
#
#   docker build --target userascode --tag userascode .
#   docker run --rm --publish 8000:8000 userascode
#
# Where packages come from is for the arguments PIP_… to say, or the base image's pip.conf; they
# stay in the stage that builds. Only wheels of which the lock has the hash are taken.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_CERT
WORKDIR /opt/uac
# pip is the build's own: where the packages go there is none.
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/venv
COPY requirements-server.lock ./
RUN /opt/pip/bin/pip --python /opt/venv/bin/python --disable-pip-version-check install \
        --no-cache-dir --no-deps --require-hashes --only-binary :all: --requirement requirements-server.lock
COPY . ./
# The root file system is read-only when this runs: what can be written ahead is written now.
RUN rm -r requirements-server.lock requirements-demo.lock deploy \
    && UAC_ENVIRONMENT=development SECRET_KEY=none DATABASE_URL=postgres://none@none/none \
        REDIS_URL=redis://none /opt/venv/bin/python manage.py collectstatic --noinput \
    && /opt/venv/bin/python -m compileall -q . \
    && chmod -R u=rwX,go=rX /opt/uac

FROM ${BASE} AS server
# Nothing installs anything here any more.
RUN rm -rf /usr/local/bin/pip* /usr/local/lib/python3.*/site-packages/* \
        /usr/local/lib/python3.*/ensurepip /usr/lib/python3.*/ensurepip /usr/share/python-wheels
COPY --from=build /opt/venv /opt/venv
COPY --from=build /opt/uac /opt/uac
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DJANGO_SETTINGS_MODULE=uac_site.settings
RUN echo 'uac:x:10001:' >>/etc/group \
    && echo 'uac:x:10001:10001:UaC:/nonexistent:/usr/sbin/nologin' >>/etc/passwd
WORKDIR /opt/uac
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python3", "uac_site/healthcheck.py"]
CMD ["granian", "--interface", "wsgi", "--host", "0.0.0.0", "--port", "8000", "--workers", "2", \
     "--blocking-threads", "16", "--workers-kill-timeout", "10", "uac_site.wsgi:application"]
ARG VERSION=0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="UaC server" \
      org.opencontainers.image.description="User as Code: an agent's memory of its user, kept as typed Python that runs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${REVISION}

FROM build AS services
COPY requirements-demo.lock ./
RUN /opt/pip/bin/pip --disable-pip-version-check install --target /opt/services \
        --no-cache-dir --no-deps --require-hashes --only-binary :all: --requirement requirements-demo.lock

FROM server AS userascode
USER 0:0
RUN mkdir /data && chown 10001:10001 /data
COPY --from=services /opt/services /opt/services
COPY deploy /opt/uac/deploy
RUN chmod -R u=rwX,go=rX /opt/uac/deploy
ENV PYTHONPATH=/opt/services
USER 10001:10001
VOLUME /data
EXPOSE 8001
CMD ["python3", "-m", "deploy.demo", "--host", "0.0.0.0", "--data", "/data"]
LABEL org.opencontainers.image.title="UaC server with everything it needs, for trying it"

# Without `--target`, the server is built: nobody deploys the demo by mistake.
FROM server
