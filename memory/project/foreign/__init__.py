"""Foreign projects: from the objects that executing one gave to the edits that make it ours.

What comes in is the graph that `sandbox_image.foreign` reads, which the foreign code may have
forged: nothing of it is trusted. What goes out are edits, exact records, and a report of all that
is otherwise afterwards: a name that could not stay, a set that became a list.

    layout(files)                           # which modules hold state, and for which domain
    graph = read(data)                      # ForeignError: no graph, or nothing in it
    plan = translate(graph, domains, sources)
    notes = plan.carry_out(project)         # EditError: refused

Where an object goes:
- what a module-level list or dictionary of one class holds is a collection, under that name;
- what a module-level name holds is a singleton, unless it is in a collection: then the name is its
  key there;
- a class that is held so anywhere is one of records, and what refers to its objects elsewhere
  becomes a reference; all other objects are parts of the records that hold them;
- whatever else a module holds is a field of one record, `variables`.
"""

from memory.project.foreign.graph import ForeignError, Graph, read
from memory.project.foreign.layout import Layout, layout
from memory.project.foreign.translate import Plan, translate

__all__ = ["ForeignError", "Graph", "Layout", "Plan", "layout", "read", "translate"]
