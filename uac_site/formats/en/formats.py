"""Date and time formats for the admin: sortable, to the second, with the time zone."""

DATE_FORMAT = "Y-m-d"
DATETIME_FORMAT = "Y-m-d H:i:s T"
