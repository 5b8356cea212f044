"""The server's door: everything that makes a workspace's requests wait, or refuses them.

| module | limits | counted in |
|---|---|---|
| `rates` | requests and entries per minute | Redis |
| `quotas` | what a workspace has, and how much of it waits | PostgreSQL |
| `slots` | requests that occupy a thread at the same time | each web process |
| `shares` | processor time while other workspaces need it | each web process |

A refusal is a `refusals.LimitExceeded`, which names the limit (429, or 403 if retrying won't help).
The views' side is `memory.kernel.http.throttles`. Language models have limits of their own, which
need the records of their calls: `memory.llm.llm_budgets` (tokens and money per day and month) and
`memory.llm.llm_turns` (calls at the same time).
"""
