"""The axes of a kernel being made, and how nodes' dimensions are laid on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tilewright.fusion.clusters import Cluster
from tilewright.fusion.maps import ZERO, Index
from tilewright.fusion.spaces import Space, by_dimension, frame_of
from tilewright.fusion.spaces import whole as whole_space
from tilewright.graph import Node
from tilewright.index import Expr, Sym, symbols
from tilewright.index.expr import Quotient, Remainder


@dataclass
class Splits:
    """Axes to make in pieces: (node id, dimension) -> extents of the pieces, outermost first."""

    pieces: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    spill: set[int] = field(default_factory=set)


class Axes:
    """Axes by name, outermost first; they are made as dimensions ask for them.

    An axis that a reshape wants in pieces is remembered in `requests`; `granted` writes them down
    in the splits, for another try that makes the axis in pieces from the start.
    """

    def __init__(self, cluster: Cluster, splits: Splits):
        self.cluster, self.splits = cluster, splits
        self.sizes: dict[str, int] = {}  # extents, in order
        self.origin: dict[str, tuple[tuple[int, int], int]] = {}  # (node, dimension), piece
        self.pinned: set[str] = set()  # never to be split
        self.requests: dict[tuple[tuple[int, int], int], set[int]] = {}
        self._labels: dict[int, list[str]] = {}  # the axes of each axis of the cluster's frame

    def make(self, owner: tuple[int, int], extent: int) -> Expr:
        """Make the axis (in pieces where it was split) of one dimension of a node."""
        if extent == 1:
            return ZERO
        pieces = self.splits.pieces.get(owner, [extent])
        result, stride = ZERO, 1
        made = []
        for number in range(len(pieces) - 1, -1, -1):
            name = f"x{len(self.sizes) + number}"
            made.append((name, pieces[number], number))
            result = Expr(((Sym(name, 0, max(pieces[number] - 1, 0)), stride),), 0) + result
            stride *= pieces[number]
        for name, size, number in reversed(made):
            self.sizes[name] = size
            self.origin[name] = (owner, number)
        return result

    def add(self, symbol: Sym) -> None:
        """Add an axis that no dimension asked for, and that is not to be split."""
        self.sizes[symbol.name] = symbol.hi + 1
        self.origin[symbol.name] = ((0, len(self.sizes)), 0)
        self.pinned.add(symbol.name)

    def match(self, node: Node, dims: Sequence[int], used: set[str], space: Space | None,
              whole: int = -1) -> Index:
        """Return an index over dimensions `dims` of node's shape on kernel axes not in `used`.

        Existing axes are taken where a run of them has the extent; else axes are made. Dimension
        `whole` is one axis. `space` is the node's, where it has one in the cluster's frame.
        """
        result = []
        used = set(used)
        labels = self._frame_axes(node, space)
        for d in dims:
            extent = node.shape[d]
            run = self._labels.get(labels[d]) if labels else None
            if extent == 1:
                run = []
            elif run is None or not used.isdisjoint(run):
                run = self._run(extent, used)
            if d == whole and run and len(run) > 1:
                run = None
            if run is None:
                expr = self.make((id(node), d), extent)
                run = list(self.names([expr]))
            else:
                expr, stride = ZERO, 1
                for name in reversed(run):
                    size = self.sizes[name]
                    expr = Expr(((Sym(name, 0, max(size - 1, 0)), stride),), 0) + expr
                    stride *= size
            if labels and labels[d] >= 0:
                self._labels.setdefault(labels[d], run)
            used |= set(run)
            result.append(expr)
        return tuple(result)

    def _frame_axes(self, node: Node, space: Space | None) -> list[int] | None:
        """Return which axis of the cluster's frame each dimension of `node` is, -1 for none."""
        frame = self.cluster.frame
        if space is None:
            if frame_of(node.shape) != frame:
                return None
            space = whole_space(frame)
        digits = by_dimension(space, node.shape)
        if digits is None:
            return None
        return [d[0][0] if len(d) == 1 and d[0][1] == 1 and d[0][2] == frame[d[0][0]] else -1
                for d in digits]

    def _run(self, extent: int, used: set[str]) -> list[str] | None:
        names = list(self.sizes)
        if extent == 0:
            return next(([n] for n in names if n not in used and not self.sizes[n]), None)
        for start in range(len(names)):
            size, run = 1, []
            for name in names[start:]:
                size *= self.sizes[name]
                if name in used or not size or extent % size:
                    break
                run.append(name)
                if size == extent:
                    return run
        return None

    def names(self, index: Sequence[Expr]) -> tuple[str, ...]:
        """Return the axes in an index, outermost first."""
        found = {s.name for expr in index for s in symbols(expr)}
        return tuple(name for name in self.sizes if name in found)

    def walks(self, shape: Sequence[int], index: Index, part: bool = False) -> bool:
        """Return whether `index` walks all of `shape`, or a part of it, each axis once."""
        seen: set[str] = set()
        for expr, extent in zip(index, shape):
            size = 1
            for atom, coef in sorted(expr.terms, key=lambda t: t[1]):
                if not isinstance(atom, Sym) or atom.name not in self.sizes \
                        or atom.name in seen or coef != size and not part:
                    return False
                seen.add(atom.name)
                size *= self.sizes[atom.name]
            if not part and (expr.const or size != extent):
                return False
        return True

    def ask(self, index: Iterable[Expr]) -> None:
        """Record the splits that would remove the divisions of a reshape's index."""
        work = list(index)
        while work:
            for atom, _ in work.pop().terms:
                if isinstance(atom, (Quotient, Remainder)):
                    work.append(atom.body)
                    for inner, coef in atom.body.terms:
                        self._ask_axis(inner, abs(coef), atom.divisor)

    def _ask_axis(self, atom: object, coef: int, divisor: int) -> None:
        if not isinstance(atom, Sym) or atom.name not in self.sizes or divisor % coef:
            return
        factor, extent = divisor // coef, self.sizes[atom.name]
        if 1 < factor < extent and extent % factor == 0:
            self.requests.setdefault(self.origin[atom.name], set()).add(factor)

    def granted(self) -> bool:
        """Move requests into `splits`; returns whether another pull would be different."""
        pinned = {self.origin[name] for name in self.pinned}
        changed = False
        for (owner, piece), factors in sorted(self.requests.items(), key=lambda r: -r[0][1]):
            if (owner, piece) in pinned:
                continue
            inner = 1
            sizes = []
            for factor in sorted(factors):
                if factor % inner == 0:
                    sizes.append(factor // inner)
                    inner = factor
            if owner in self.splits.pieces:
                pieces = self.splits.pieces[owner]
            else:
                name = next(n for n, o in self.origin.items() if o == (owner, piece))
                pieces = self.splits.pieces[owner] = [self.sizes[name]]
            sizes.append(pieces[piece] // inner)
            pieces[piece:piece + 1] = list(reversed(sizes))
            changed = True
        return changed
