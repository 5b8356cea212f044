"""What all answers of the API have in common."""

from pydantic import BaseModel, ConfigDict, PrivateAttr


class Model(BaseModel):
    """An answer of the API, or a part of one. Fields that this version does not know are kept."""

    model_config = ConfigDict(
        extra="allow", populate_by_name=True, defer_build=True, protected_namespaces=()
    )
    _etag: str | None = PrivateAttr(default=None)

    @property
    def etag(self) -> str | None:
        """The answer's ETag, for `if_match` of a later change; None in a part of an answer."""
        return self._etag
