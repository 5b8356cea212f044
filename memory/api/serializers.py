"""What the serializers of the API share."""

from typing import Any

from rest_framework import serializers


class StrictSerializer(serializers.Serializer[Any]):
    """A body that refuses fields it does not know: a misspelt name must not vanish silently."""

    def to_internal_value(self, data: Any) -> Any:
        """Validate the fields; raises ValidationError that names each unknown one."""
        if isinstance(data, dict) and (unknown := sorted(set(data) - set(self.fields))):
            known = ", ".join(self.fields)
            raise serializers.ValidationError(
                {name: [f"Unknown field; this body has: {known}."] for name in unknown}
            )
        return super().to_internal_value(data)
