"""Foreign projects: turn the object graph of an executed project into edits that import it.

The input is the graph that `sandbox_image.foreign_objects` reads, which the foreign code may have
forged: nothing in it is trusted. The output is edits, exact records, and a report of everything
that differs afterwards, such as a name that had to change or a set that became a list.

    layout(files)                           # which modules hold state, and for which domain
    graph = read(data)                      # ForeignError: no graph, or nothing in it
    plan = translate(graph, domains, sources)
    notes = plan.carry_out(project)         # EditError: refused

The place of an object:

- a module-level list or dictionary of objects of one class becomes a collection of that name;
- an object with a module-level name becomes a singleton, unless it is in a collection: then the
  name is its key there;
- a class that occurs in such a place is a record class, and other occurrences of its objects
  become references; all other objects are parts of the records that hold them;
- everything else that a module holds is a field of one record, `variables`.
"""

from memory.project.foreign.graph import ForeignError, Graph, read
from memory.project.foreign.layout import Layout, layout
from memory.project.foreign.plans import Plan
from memory.project.foreign.translate import translate

__all__ = ["ForeignError", "Graph", "Layout", "Plan", "layout", "read", "translate"]
