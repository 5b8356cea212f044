"""Nobody waits for the database while a provider computes vectors."""

from django.db import connection

from memory.kernel.models.users import MemoryUser
from tests.embeddings_server import EmbeddingsRequest, embedded
from tests.integration.search.conftest import Find, Say, index_all
from tests.integration.search.test_remote_embeddings import Serve, fresh, serve, use
from tests.llm_server import Misbehaviour

__all__ = ["fresh", "serve", "use"]


def test_no_transaction_is_open_while_the_provider_works(
    live_database: str, eager: None, user: MemoryUser, say: Say, search: Find, serve: Serve
) -> None:
    open_transactions = []

    def look(request: EmbeddingsRequest) -> Misbehaviour:
        try:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
                    " AND state LIKE 'idle in transaction%%'",
                    [live_database],
                )
                open_transactions.append(cursor.fetchone()[0])
        finally:
            connection.close()
        return embedded(request)

    serve(look)
    say("My puppy sleeps")
    search("hound")  # the question, and the end of the log
    index_all(user)
    search("cat")

    assert open_transactions == [0, 0, 0, 0]
