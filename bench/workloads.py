"""Compile-time workloads, written once against any array namespace.

Each function takes `xp` (tilewright, jax.numpy, or the float64 NumPy of `reference`) and returns
(f, args): a function of arrays and NumPy float32 inputs for it. Only names common to the array API
are used, and ``x.at[i].set(v)`` for a functional write. Numbers in the names are unrolled steps.

    lorenz(xp, n)         n Euler steps of 64 Lorenz systems, summed          one elementwise chain
    rnn(xp, n)            n steps of a linear recurrence with a loss at each  matrix products, 32x32
    attention(xp)         one head, 64 x 64                                   products and a softmax
    mlp(xp)               three-layer perceptron loss                         with its gradient
    ilqr(xp, t, k)        k unrolled iterations of iLQR, t steps, pendulum    indexed writes
    cartpole(xp, t, k)    the same solver on a cart-pole                      four states
"""


import numpy as np

FLOAT = np.float32


def _random(*shape, scale=0.1, seed=0):
    return np.random.default_rng(seed + sum(shape)).uniform(-scale, scale, shape).astype(FLOAT)


def lorenz(xp, n):
    def f(x, y, z):
        for _ in range(n):
            dx, dy, dz = 10.0 * (y - x), x * (28.0 - z) - y, x * y - 2.5 * z
            x, y, z = x + 0.01 * dx, y + 0.01 * dy, z + 0.01 * dz
        return xp.sum(x + y + z)
    return f, [_random(64, seed=i) for i in range(3)]


def rnn(xp, n):
    def f(w_in, w_rec, h, *xs):
        loss = xp.sum(h * 0.0)
        for x in xs:
            h = xp.matmul(x, w_in) + xp.matmul(h, w_rec)
            loss = loss + xp.sum(h * h)
        return loss
    return f, [_random(32, 32, seed=i) for i in range(3 + n)]


def attention(xp):
    def f(q, k, v):
        s = xp.matmul(q, xp.permute_dims(k, (1, 0))) * 0.125
        s = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
        return xp.matmul(s / xp.sum(s, axis=-1, keepdims=True), v)
    return f, [_random(64, 64, seed=i) for i in range(3)]


def mlp(xp):
    def f(x, w1, w2, w3):
        h = xp.matmul(x, w1)
        h = xp.where(h > 0, h, 0 * h)
        h = xp.matmul(h, w2)
        h = xp.where(h > 0, h, 0 * h)
        return xp.sum(xp.matmul(h, w3) ** 2)
    return f, [_random(64, 256), _random(256, 256), _random(256, 256, seed=9), _random(256, 10)]


# -- iterative linear quadratic regulator ----------------------------------------------------------
# One iteration: roll out, linearise about the trajectory, a backward Riccati pass, a forward pass
# with clipped controls, and the better of two step lengths by cost. All of it is unrolled, as a
# traced Python program is.


def _pendulum(xp, p, x, u):
    """State (angle, speed), control (torque); p = (gravity over length, damping)."""
    a, w = x[0], x[1]
    w2 = w + 0.05 * (-p[0] * xp.sin(a) - p[1] * w + u[0])
    return xp.stack([a + 0.05 * w2, w2])


def _pendulum_jacobian(xp, p, x, u):
    a = x[0]
    one, zero = 1.0 + 0 * a, 0 * a
    da = -0.05 * p[0] * xp.cos(a)
    dw = one - 0.05 * p[1]
    fx = xp.stack([xp.stack([one + 0.05 * da, 0.05 * dw]), xp.stack([da, dw])])
    fu = xp.stack([xp.stack([zero + 0.0025]), xp.stack([zero + 0.05])])
    return fx, fu


def _cartpole(xp, p, x, u):
    """State (position, angle, speed, angular speed), control (force); p = (mass ratio, length)."""
    s, c, w = xp.sin(x[1]), xp.cos(x[1]), x[3]
    den = 1.0 + p[0] * s * s
    acc = (u[0] + p[0] * s * (p[1] * w * w + 9.81 * c)) / den
    ang = (-u[0] * c - p[0] * p[1] * w * w * c * s - (1.0 + p[0]) * 9.81 * s) / (p[1] * den)
    v2, w2 = x[2] + 0.05 * acc, w + 0.05 * ang
    return xp.stack([x[0] + 0.05 * v2, x[1] + 0.05 * w2, v2, w2])


def _cartpole_jacobian(xp, p, x, u, eps=1e-2):
    """Central differences: many small shared expressions, as hand-written robotics code has."""
    cols = []
    for i in range(4):
        d = xp.zeros_like(x).at[i].set(eps)
        cols.append((_cartpole(xp, p, x + d, u) - _cartpole(xp, p, x - d, u)) * (0.5 / eps))
    fx = xp.stack(cols, axis=1)
    fu = (_cartpole(xp, p, x, u + eps) - _cartpole(xp, p, x, u - eps)) * (0.5 / eps)
    return fx, xp.expand_dims(fu, axis=1)


def _zeros(xp, *shape):
    return xp.zeros(shape, dtype=xp.float32)


def _rollout(xp, step, n, p, x0, us):
    xs = _zeros(xp, us.shape[0] + 1, n).at[0].set(x0)
    for i in range(us.shape[0]):
        xs = xs.at[i + 1].set(step(xp, p, xs[i], us[i]))
    return xs


def _cost(xp, xs, us):
    end = xs[us.shape[0]]
    return xp.sum(xs * xs) + 10.0 * xp.sum(end * end) + 0.1 * xp.sum(us * us)


def _backward(xp, jacobian, n, p, xs, us):
    """The Riccati pass: feed-forward terms (t, 1) and feedback gains (t, 1, n)."""
    t = us.shape[0]
    eye = xp.eye(n, dtype=xp.float32)
    vx, vxx = 22.0 * xs[t], 22.0 * eye
    ks, gains = _zeros(xp, t, 1), _zeros(xp, t, 1, n)
    for i in reversed(range(t)):
        fx, fu = jacobian(xp, p, xs[i], us[i])
        fxt, fut = xp.permute_dims(fx, (1, 0)), xp.permute_dims(fu, (1, 0))
        qx = 2.0 * xs[i] + xp.matmul(fxt, vx)
        qu = 0.2 * us[i] + xp.matmul(fut, vx)
        qxx = 2.0 * eye + xp.matmul(xp.matmul(fxt, vxx), fx)
        quu = 0.2 + xp.matmul(xp.matmul(fut, vxx), fu)
        qux = xp.matmul(xp.matmul(fut, vxx), fx)
        inv = 1.0 / xp.maximum(quu, 0 * quu + 1e-3)
        kff, gain = -xp.matmul(inv, qu), -xp.matmul(inv, qux)
        vx = qx + xp.matmul(xp.permute_dims(gain, (1, 0)), xp.matmul(quu, kff) + qu)
        vx = vx + xp.matmul(xp.permute_dims(qux, (1, 0)), kff)
        vxx = qxx + xp.matmul(xp.permute_dims(qux, (1, 0)), gain)
        ks, gains = ks.at[i].set(kff), gains.at[i].set(gain)
    return ks, gains


def _iteration(xp, step, jacobian, n, p, x0, us):
    xs = _rollout(xp, step, n, p, x0, us)
    ks, gains = _backward(xp, jacobian, n, p, xs, us)
    best_us, best = us, _cost(xp, xs, us)
    for alpha in (1.0, 0.5):
        x, new = x0, _zeros(xp, us.shape[0], 1)
        for i in range(us.shape[0]):
            u = us[i] + alpha * ks[i] + xp.matmul(gains[i], x - xs[i])
            u = xp.minimum(xp.maximum(u, 0 * u - 5.0), 0 * u + 5.0)
            new = new.at[i].set(u)
            x = step(xp, p, x, u)
        c = _cost(xp, _rollout(xp, step, n, p, x0, new), new)
        better = c < best
        best_us, best = xp.where(better, new, best_us), xp.where(better, c, best)
    return best_us, best


def _solver(xp, step, jacobian, n, t, k):
    def f(p, x0):
        us, value = _zeros(xp, t, 1), None
        for _ in range(k):
            us, value = _iteration(xp, step, jacobian, n, p, x0, us)
        return value
    return f


def ilqr(xp, t=20, k=6):
    return _solver(xp, _pendulum, _pendulum_jacobian, 2, t, k), [
        np.array([9.81, 0.1], FLOAT), np.array([1.0, 0.0], FLOAT)]


def cartpole(xp, t=10, k=6):
    return _solver(xp, _cartpole, _cartpole_jacobian, 4, t, k), [
        np.array([0.3, 0.5], FLOAT), np.array([0.1, 0.3, 0.0, 0.0], FLOAT)]


ALL = {
    **{f"lorenz{n}": (lambda xp, n=n: lorenz(xp, n)) for n in (10, 50, 200, 1000)},
    **{f"rnn{n}": (lambda xp, n=n: rnn(xp, n)) for n in (2, 10, 20, 100)},
    "attention": attention,
    "mlp": mlp,
    "ilqr20x1": lambda xp: ilqr(xp, 20, 1),
    "ilqr20x6": lambda xp: ilqr(xp, 20, 6),
    "cartpole10x6": lambda xp: cartpole(xp, 10, 6),
}
# which arguments to differentiate by
GRAD = {"mlp": (1, 2, 3), "lorenz200": (0, 1, 2), "ilqr20x1": (0,), "ilqr20x6": (0,),
        "cartpole10x6": (0,)}
