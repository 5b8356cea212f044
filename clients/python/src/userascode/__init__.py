"""Client of UaC (User as Code), a memory for AI agents that computes.

`Client` and `AsyncClient` have the same methods. What the API answers is in `userascode.models`,
what the client raises in `userascode.errors` and `userascode.problems`.
"""

from userascode._async.client import AsyncClient
from userascode._async.user import AsyncUser
from userascode._sync.client import Client
from userascode._sync.user import User
from userascode.entries import correction, fact, message, record
from userascode.errors import Problem, StillRunning, UserAsCodeError
from userascode.prescribed import render_classes

__all__ = [
    "AsyncClient",
    "AsyncUser",
    "Client",
    "Problem",
    "StillRunning",
    "User",
    "UserAsCodeError",
    "correction",
    "fact",
    "message",
    "record",
    "render_classes",
]
