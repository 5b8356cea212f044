"""Code that runs in Celery workers."""
