"""What to do about entries that were rejected, or whose values were set aside."""

# How to fix a rejected entry, shown along with the reason; the reason describes the error.
FIX = (
    "Append the record again, corrected as the reason says. If the reason names an edit, such as"
    ' widen_field, make that edit first: POST /v1/users/{user_id}/checkpoints/ with {"edits":'
    ' [{"op": "widen_field", …}]}. The rejected entry stays in the log and has no effect.'
)


# How to make a value fit that was set aside.
FIX_SET_ASIDE = (
    "The value is kept in the record's `set_aside`, and its field is empty. Append the record again"
    " with a value that fits, or give the field a wider type: POST /v1/users/{user_id}/checkpoints/"
    ' with {"edits": [{"op": "widen_field", …}]}; the value then moves into the field by itself.'
)
