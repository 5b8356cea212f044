"""Foreign projects: turn the object graph of an executed project into edits that import it.

A sandbox executes the project (`in_sandbox.py`) and returns a graph of its objects. The foreign
code could have forged this graph, so nothing in it is trusted. The output consists of edits, the
exact records, and a report of everything the import changes, such as a name that isn't allowed or a
dictionary that is converted to an object. A value of another kind refuses the import.

    layout(files)                           # which modules hold state, and for which domain
    reading_code(files, modules)            # the query that executes them in a sandbox
    graph = read(graph_in(answer))          # ForeignError: failed code, invalid or empty graph
    plan = translate(graph, domains, sources)
    notes = plan.carry_out(project)         # EditError: the import was rejected

Where each object is placed:

- a module-level list of objects of one class becomes a collection of the same name;
- an object with a module-level name becomes a singleton or, if it is in a collection, keeps the
  name as its key there;
- the classes of these objects become record classes, and other occurrences of the objects become
  references; all other objects become parts of the records that contain them;
- every other module-level value becomes a field of a single record, `variables`.
"""

from memory.integrations.foreign.execution import graph_in, reading_code
from memory.integrations.foreign.graph import ForeignError, read
from memory.integrations.foreign.layout import Layout, layout
from memory.integrations.foreign.plans import Plan
from memory.integrations.foreign.translate import translate

__all__ = [
    "ForeignError",
    "Layout",
    "Plan",
    "graph_in",
    "layout",
    "read",
    "reading_code",
    "translate",
]
