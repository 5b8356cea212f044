"""Date and time formats in the admin: sortable, precise to the second, with the time zone."""

DATE_FORMAT = "Y-m-d"
DATETIME_FORMAT = "Y-m-d H:i:s T"
