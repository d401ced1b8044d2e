"""Child processes that compile and time candidates, where a crash or a hang costs only them.

    messages    what goes over the pipes
    process     a child as its parent sees it
    pool        compilers that share sources
    guard, compiling, bench, values    inside the child: its limits, its two roles

``python -m tilewright.worker compile|bench`` is a child, which serves requests on its standard
input until that ends. Children are plain processes, never forks of the user's: nothing of the
user's script is imported or shared.
"""
