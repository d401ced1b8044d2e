"""The printed form of a kernel, which is also its key: complete and deterministic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.kernel.value import Value, const_number, postorder

if TYPE_CHECKING:
    from tilewright.kernel.kernel import Kernel, Stage, Store

_INLINE = ("const", "index", "test", "divides", "state", "other")


def print_kernel(kernel: Kernel) -> str:
    """Return the kernel as text: axes, buffers, then each stage with numbered values."""
    lines = ["kernel " + " ".join(f"{a.name}={a.extent}" for a in kernel.axes)]
    for b in kernel.buffers:
        shape = ", ".join(map(str, b.shape))
        lines.append(f"  {b.name}: {b.kind} {b.dtype}[{shape}]"
                     + (f" alias {b.alias}" if b.alias else "") + (" part" if b.part else ""))
    for stage in kernel.stages:
        lines += _print_stage(stage)
    return "\n".join(lines)


def _print_stage(stage: Stage) -> list[str]:
    kind = stage.state.name if stage.state else "map"
    roles = " ".join(f"{role}[{' '.join(a for a, r in stage.roles if r == role)}]"
                     for role in ("free", "reduce", "carry") if stage.axes(role))
    lines = [f"  {stage.name}  {kind} {roles}"]
    names: dict[int, str] = {}
    count = 0
    for value in postorder(stage.roots()):
        if value.op in _INLINE:
            names[id(value)] = print_leaf(value)
        else:
            names[id(value)] = f"v{count}"
            count += 1
            lines.append(f"    {names[id(value)]} = {_print_op(value, names)} : {value.dtype}")
    lines += [f"    let {let.sym.name} = {names[id(let.value)]} in {let.sym.lo}..{let.sym.hi}"
              for let in stage.lets]
    if stage.state:
        init = ", ".join(print_leaf(v) for v in stage.state.init)
        update = ", ".join(names[id(v)] for v in stage.state.update)
        lines.append(f"    state init ({init}) update ({update})")
    lines += [_print_store(s, names) for s in stage.stores]
    return lines


def _print_store(store: Store, names: dict[int, str]) -> str:
    text = f"    {store.buffer}[{', '.join(map(str, store.index))}] {store.combine}= " \
           f"{names[id(store.value)]}"
    if store.guard:
        text += " if " + " and ".join(names[id(g)] for g in store.guard)
    return text


def _print_op(value: Value, names: dict[int, str]) -> str:
    args = [names[id(a)] for a in value.args]
    if value.op == "load":
        buffer, where = value.data
        text = f"{buffer}[{', '.join(map(str, where))}]"
        return text + (" if " + " and ".join(args) if args else "")
    return f"{value.op}({', '.join(args)})"


def print_leaf(value: Value) -> str:
    """Return a leaf value as text. NaNs print with their bits."""
    if value.op == "const":
        number = const_number(value)
        if number != number:
            return f"nan:{value.data.hex()}:{value.dtype}"
        return f"{number!s}:{value.dtype}" if value.dtype.name != "float32" else repr(float(number))
    if value.op == "index":
        return f"({value.data})"
    if value.op == "test":
        return f"[{value.data} >= 0]"
    if value.op == "divides":
        return f"[{value.data[1]} divides {value.data[0]}]"
    return f"{value.op}{value.data}"
