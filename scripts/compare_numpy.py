#!/usr/bin/python3
"""Compares a dump of shardmark-tp or shardmark-cp with an independent evaluation in NumPy, in float64.

Usage: scripts/compare_numpy.py DUMP_DIR [--self-test]

DUMP_DIR is what `shardmark-tp --dump DUMP_DIR` wrote: one .npy file per tensor and rank, and
manifest.json. Of a sweep it is a folder of such folders (row0, row1, ...), and every row is
compared. Global tensors are put together from the ranks' shards; where a rank holds some tokens of
each sequence (shardmark-cp), the manifest says which. The reference takes only
inputs and weights from the dump (as rounded to the run's dtype) and computes every activation,
the loss and every gradient. Reported per tensor: norm(dumped - reference) / norm(reference).
Exit code 1 if one exceeds the tolerance, if copies of a replicated tensor differ between ranks,
or if a tensor is missing or unknown.

  --self-test   also change and drop each compared tensor once: each must be noticed

Conventions: y = x @ W with W stored [in, out]; token t of batch * seq is at position t % seq;
query head i reads KV head i // (heads / kv_heads); rotary pairs (i, i + head_dim / 2) turn by
position * theta^(-2i / head_dim), as in GPT-NeoX and Llama; the loss is the mean over tokens.
A query sees the keys of its own packed sequence, up to itself if causal, and with a window only
those less than that many tokens away; rotary positions count from the packed sequence's start.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np

TOLERANCE = {"f32": 1e-5, "bf16": 2e-2}
erf = np.vectorize(math.erf, otypes=[np.float64])


class BadDump(Exception):
    pass


# ------------------------------------------------------------------------- reading the dump


class Dump:
    """The global tensors of a dump. `copies_differ` lists what ranks disagree on."""

    def __init__(self, folder):
        manifest_path = folder / "manifest.json"
        if not manifest_path.is_file():
            raise BadDump(f"{folder} has no manifest.json and no row*/manifest.json; expected the "
                          "folder given to --dump, or one of its rows")
        manifest = json.loads(manifest_path.read_text())
        self.config = manifest["config"]
        self.tensors, self.roles, self.copies_differ = {}, {}, []
        known = {}
        for entry in manifest["tensors"]:
            local = np.load(folder / entry["file"]).astype(np.float64)
            if list(local.shape) != list(entry["shape"]):
                raise BadDump(f"{entry['file']}: shape {local.shape}, manifest {entry['shape']}")
            for part in entry["parts"]:
                self.add(part, local, entry, known)
        for name, is_known in known.items():
            if not is_known.all():
                raise BadDump(f"{name}: the shards leave {(~is_known).sum()} elements out")

    def add(self, part, local, entry, known):
        name, shape, dim = part["of"], part["global_shape"], entry["dim"]
        if name not in self.tensors:
            self.tensors[name], known[name] = np.zeros(shape), np.zeros(shape, bool)
            self.roles[name] = entry["role"]
        first, count = part["local_first"], part["count"]
        values = np.take(local, range(first, first + count), axis=dim)
        where = [slice(None)] * len(shape)
        where[dim] = slice(part["global_first"], part["global_first"] + count)
        if entry["rows"]:  # of a tensor split along columns: runs of first, count, stride
            rows = [first + stride * np.arange(n) for first, n, stride in entry["rows"]]
            where[0] = np.concatenate(rows)
        where = tuple(where)
        already = known[name][where]
        if not np.array_equal(self.tensors[name][where][already], values[already]):
            self.copies_differ.append(name)
        self.tensors[name][where] = values
        known[name][where] = True


# ------------------------------------------------------------------------------- the layers
# Each takes the dump's weights by name and stores what it computes under the dump's names.
# Letters: T tokens, D hidden, F ffn, H heads, d head_dim.


class Reference:
    def __init__(self, config, inputs):
        self.config, self.inputs = config, inputs
        self.computed = {}
        self.term_norm = {}  # for sums that cancel to 0: the norm of what is summed

    def weight(self, name):
        if name not in self.inputs:
            raise BadDump(f"{name} is not in the dump")
        return self.inputs[name]

    def store(self, name, value):
        self.computed[name] = value
        return value

    # linear: one weight, or one per part of a fused projection

    def linear(self, name, x, parts=("",)):
        ys = []
        for part in parts:
            path = f"{name}/{part}" if part else name
            y = x @ self.weight(path + "/weight")
            if self.config["biases"]:
                y = y + self.weight(path + "/bias")
            ys.append(self.store(path + "/y", y))
        return ys

    def linear_backward(self, name, x, dys, parts=("",)):
        dx = 0
        for part, dy in zip(parts, dys):
            path = f"{name}/{part}" if part else name
            self.store(path + "/weight_grad", x.T @ dy)
            if self.config["biases"]:
                self.store(path + "/bias_grad", dy.sum(axis=0))
                if part == "key":
                    self.term_norm[path + "/bias_grad"] = np.linalg.norm(dy)
            dx = dx + dy @ self.weight(path + "/weight").T
        return self.store(name + "/x_grad", dx)

    # norms

    def normalise(self, x):
        mean = x.mean(axis=1, keepdims=True) if self.config["norm"] == "layer" else 0.0
        centred = x - mean
        variance = (centred**2).mean(axis=1, keepdims=True)
        scale = 1.0 / np.sqrt(variance + self.config["norm_epsilon"])
        return centred * scale, scale

    def norm(self, name, x):
        y = self.normalise(x)[0] * self.weight(name + "/gain")
        if self.config["norm"] == "layer":
            y = y + self.weight(name + "/bias")
        return self.store(name + "/y", y)

    def norm_backward(self, name, x, dy):
        unit, scale = self.normalise(x)
        self.store(name + "/gain_grad", (dy * unit).sum(axis=0))
        if self.config["norm"] == "layer":
            self.store(name + "/bias_grad", dy.sum(axis=0))
        dunit = dy * self.weight(name + "/gain")
        dx = dunit - unit * (dunit * unit).mean(axis=1, keepdims=True)
        if self.config["norm"] == "layer":
            dx = dx - dunit.mean(axis=1, keepdims=True)
        return self.store(name + "/x_grad", scale * dx)

    # attention

    def sequence_of_token(self):
        """Which packed sequence each place of `seq` belongs to."""
        lengths = self.config["seqlens"] or [self.config["seq"]]
        return np.repeat(np.arange(len(lengths)), lengths)

    def positions(self):
        """Each place's position in its packed sequence."""
        sequence = self.sequence_of_token()
        return np.arange(len(sequence)) - np.searchsorted(sequence, sequence)

    def visible(self):
        """visible[query, key], from the definition."""
        place, sequence = np.arange(self.config["seq"]), self.sequence_of_token()
        query, key = place[:, None], place[None, :]
        seen = sequence[:, None] == sequence[None, :]
        if self.config["causal"]:
            seen &= key <= query
        if self.config["window"]:
            seen &= abs(query - key) < self.config["window"]
        return seen

    def rotate(self, x, direction):
        """x_T(H*d), turned by +angle (forward) or -angle (its transpose)."""
        if self.config["positions"] != "rotary":
            return x
        head_dim, half = self.config["head_dim"], self.config["head_dim"] // 2
        position = np.tile(self.positions(), x.shape[0] // self.config["seq"])
        # The program keeps theta in single precision.
        theta = float(np.float32(self.config["rope_theta"]))
        frequency = theta ** (-2.0 * np.arange(half) / head_dim)
        angle = direction * position[:, None, None] * frequency
        heads = x.reshape(x.shape[0], -1, head_dim)
        low, high = heads[..., :half], heads[..., half:]
        turned = [low * np.cos(angle) - high * np.sin(angle),
                  low * np.sin(angle) + high * np.cos(angle)]
        return np.concatenate(turned, axis=-1).reshape(x.shape)

    def heads_of(self, x):
        """x_T(H*d) as batch, H, seq, d."""
        c = self.config
        return x.reshape(c["batch"], c["seq"], -1, c["head_dim"]).transpose(0, 2, 1, 3)

    @staticmethod
    def tokens_of(x):
        return x.transpose(0, 2, 1, 3).reshape(x.shape[0] * x.shape[2], -1)

    def attention(self, name, x):
        names = ("query", "key", "value")
        q, k, v = self.linear(name + "/qkv", x, names)
        q = self.store(f"{name}/qkv/query/y", self.rotate(q, +1))
        k = self.store(f"{name}/qkv/key/y", self.rotate(k, +1))
        o = self.store(name + "/o", self.core(q, k, v))
        return self.linear(name + "/projection", o)[0]

    def core(self, q, k, v):
        shared = self.config["heads"] // self.config["kv_heads"]
        values = np.repeat(self.heads_of(v), shared, axis=1)
        return self.tokens_of(self.probabilities(q, k) @ values)

    def probabilities(self, q, k):
        c = self.config
        shared = c["heads"] // c["kv_heads"]
        keys = np.repeat(self.heads_of(k), shared, axis=1)
        scores = self.heads_of(q) @ keys.transpose(0, 1, 3, 2) / math.sqrt(c["head_dim"])
        scores = np.where(self.visible(), scores, -np.inf)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return scores / scores.sum(axis=-1, keepdims=True)

    def attention_backward(self, name, x, dy):
        q, k, v = (self.computed[f"{name}/qkv/{part}/y"] for part in ("query", "key", "value"))
        d_o = self.linear_backward(name + "/projection", self.computed[name + "/o"], [dy])
        dq, dk, dv = self.core_backward(q, k, v, d_o)
        dq, dk = self.rotate(dq, -1), self.rotate(dk, -1)
        return self.linear_backward(name + "/qkv", x, [dq, dk, dv], ("query", "key", "value"))

    def core_backward(self, q, k, v, d_o):
        c = self.config
        shared = c["heads"] // c["kv_heads"]
        queries, d_o = self.heads_of(q), self.heads_of(d_o)
        keys = np.repeat(self.heads_of(k), shared, axis=1)
        values = np.repeat(self.heads_of(v), shared, axis=1)
        p = self.probabilities(q, k)
        dp = d_o @ values.transpose(0, 1, 3, 2)
        ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) / math.sqrt(c["head_dim"])

        def sum_sharers(per_head):
            batch, _, seq, head_dim = per_head.shape
            return per_head.reshape(batch, c["kv_heads"], shared, seq, head_dim).sum(axis=2)

        return (self.tokens_of(ds @ keys),
                self.tokens_of(sum_sharers(ds.transpose(0, 1, 3, 2) @ queries)),
                self.tokens_of(sum_sharers(p.transpose(0, 1, 3, 2) @ d_o)))

    def attention_alone(self):
        q, k, v, d_o = (self.weight(name) for name in ("q", "k", "v", "o_grad"))
        self.store("o", self.core(q, k, v))
        for name, gradient in zip("qkv", self.core_backward(q, k, v, d_o)):
            self.store(name + "_grad", gradient)

    # MLP

    def gelu(self, x):
        """gelu(x) and its derivative."""
        if self.config["gelu"] == "erf":
            cdf = 0.5 * (1.0 + erf(x / math.sqrt(2.0)))
            return x * cdf, cdf + x * np.exp(-x * x / 2.0) / math.sqrt(2.0 * math.pi)
        slope = math.sqrt(2.0 / math.pi)
        t = np.tanh(slope * (x + 0.044715 * x**3))
        derivative = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope * (1 + 3 * 0.044715 * x * x)
        return 0.5 * x * (1 + t), derivative

    def mlp_parts(self):
        return ("gate", "up") if self.config["mlp"] == "swiglu" else ("",)

    def mlp(self, name, x):
        pre = self.linear(name + "/fc1", x, self.mlp_parts())
        if self.config["mlp"] == "swiglu":
            gate, up = pre
            activated = gate / (1.0 + np.exp(-gate)) * up
        else:
            activated = self.gelu(pre[0])[0]
        return self.linear(name + "/fc2", self.store(name + "/activated", activated))[0]

    def mlp_backward(self, name, x, dy):
        paths = [f"{name}/fc1/{part}/y" if part else f"{name}/fc1/y" for part in self.mlp_parts()]
        pre = [self.computed[path] for path in paths]
        dact = self.linear_backward(name + "/fc2", self.computed[name + "/activated"], [dy])
        if self.config["mlp"] == "swiglu":
            gate, up = pre
            sigmoid = 1.0 / (1.0 + np.exp(-gate))
            dpre = [dact * up * sigmoid * (1 + gate * (1 - sigmoid)), dact * gate * sigmoid]
        else:
            dpre = [dact * self.gelu(pre[0])[1]]
        return self.linear_backward(name + "/fc1", x, dpre, self.mlp_parts())

    # block

    def block(self, name, x):
        attended = self.attention(name + "/attention", self.norm(name + "/norm1", x))
        x1 = self.store(name + "/x1", x + attended)
        mixed = self.mlp(name + "/mlp", self.norm(name + "/norm2", x1))
        return self.store(name + "/y", x1 + mixed)

    def block_backward(self, name, x, dy):
        x1 = self.computed[name + "/x1"]
        dmlp = self.mlp_backward(name + "/mlp", self.computed[name + "/norm2/y"], dy)
        dx1 = self.store(name + "/x1_grad", dy + self.norm_backward(name + "/norm2", x1, dmlp))
        dattention = self.attention_backward(name + "/attention",
                                             self.computed[name + "/norm1/y"], dx1)
        return self.store(name + "/x_grad",
                          dx1 + self.norm_backward(name + "/norm1", x, dattention))

    # model

    def model(self):
        layers = range(self.config["layers"])
        ids = self.weight("embedding/ids").astype(int)
        targets = self.weight("head/targets").astype(int)
        x = self.weight("embedding/table")[ids]
        learned = self.config["positions"] == "learned"
        if learned:
            position = np.arange(ids.size) % self.config["seq"]
            x = x + self.weight("embedding/positions")[position]
        xs = [self.store("embedding/y", x)]
        for layer in layers:
            xs.append(self.block(f"block{layer}", xs[-1]))
        normed = self.norm("final_norm", xs[-1])
        logits = normed @ self.weight("head/logits/weight")
        self.store("head/logits/y", logits)
        maximum = logits.max(axis=1)
        exponentials = np.exp(logits - maximum[:, None])
        total = exponentials.sum(axis=1)
        rows = np.arange(ids.size)
        self.store("head/loss", np.log(total) + maximum - logits[rows, targets])

        dlogits = exponentials / total[:, None]
        dlogits[rows, targets] -= 1.0
        dlogits = self.store("head/logits_grad", dlogits / ids.size)
        self.store("head/logits/weight_grad", normed.T @ dlogits)
        dx = self.store("head/logits/x_grad", dlogits @ self.weight("head/logits/weight").T)
        dx = self.norm_backward("final_norm", xs[-1], dx)
        for layer in reversed(layers):
            dx = self.block_backward(f"block{layer}", xs[layer], dx)
        dtable = np.zeros_like(self.weight("embedding/table"))
        np.add.at(dtable, ids, dx)
        self.store("embedding/table_grad", dtable)
        if learned:
            dpositions = np.zeros_like(self.weight("embedding/positions"))
            np.add.at(dpositions, position, dx)
            self.store("embedding/positions_grad", dpositions)

    def run(self):
        kind = self.config["block"]
        if kind == "model":
            return self.model()
        if kind == "attention-core":
            return self.attention_alone()
        x, dy = self.weight("x"), self.weight("y_grad")
        if kind in ("linear-column", "linear-row"):
            self.linear("linear", x)
            self.linear_backward("linear", x, [dy])
        else:
            name = "block0" if kind == "block" else kind
            getattr(self, kind)(name, x)
            getattr(self, kind + "_backward")(name, x, dy)


# --------------------------------------------------------------------------------- comparison


def compare(dumped, reference, tolerance):
    """[(name, relative error or None, problem or '')] in the order of computation."""
    rows = []
    for name, expected in reference.computed.items():
        if name not in dumped:
            rows.append((name, None, "missing in the dump"))
            continue
        got = dumped[name]
        if got.shape != expected.shape:
            rows.append((name, None, f"shape {got.shape}, expected {expected.shape}"))
            continue
        scale = max(np.linalg.norm(expected), reference.term_norm.get(name, 0.0))
        error = np.linalg.norm(got - expected) / scale if scale > 0 else np.linalg.norm(got)
        rows.append((name, error, "" if error <= tolerance else f"more than {tolerance:g}"))
    for name in dumped:
        if name not in reference.computed:
            rows.append((name, None, "not known to the reference"))
    return rows


def self_test(dumped, reference, tolerance):
    """Names of tensors whose change or absence goes unnoticed."""
    unnoticed = []
    for name, value in dumped.items():
        changed = value.copy()
        scale = max(np.linalg.norm(value), reference.term_norm.get(name, 0.0))
        changed.flat[changed.size // 2] += 3 * tolerance * scale
        dropped = {other: dumped[other] for other in dumped if other != name}
        for mutant in ({**dumped, name: changed}, dropped):
            if not any(row[0] == name and row[2] for row in compare(mutant, reference, tolerance)):
                unnoticed.append(name)
    return unnoticed


def compare_dump(folder, with_self_test):
    """Prints how a dump compares; returns the number of failures."""
    dump = Dump(folder)
    is_given = {name: role in ("input", "weight") for name, role in dump.roles.items()}
    inputs = {name: tensor for name, tensor in dump.tensors.items() if is_given[name]}
    dumped = {name: tensor for name, tensor in dump.tensors.items() if not is_given[name]}
    reference = Reference(dump.config, inputs)
    reference.run()
    tolerance = TOLERANCE[dump.config["dtype"]]

    rows = compare(dumped, reference, tolerance)
    rows += [(name, None, "copies differ between ranks")
             for name in sorted(set(dump.copies_differ))]
    width = max(len(row[0]) for row in rows)
    for name, error, problem in rows:
        shown = "-" if error is None else f"{error:.2e}"
        print(f"{name:<{width}}  {shown:>9}  {'FAIL: ' + problem if problem else 'ok'}")
    failed = sum(1 for row in rows if row[2])
    worst = max((row[1] for row in rows if row[1] is not None), default=0.0)
    print(f"{len(rows)} tensors, {failed} failed; largest relative error {worst:.2e} "
          f"(tolerance {tolerance:g})")
    if with_self_test:
        unnoticed = self_test(dumped, reference, tolerance)
        print(f"self-test: {2 * len(dumped)} changes, {len(unnoticed)} unnoticed {unnoticed or ''}")
        failed += len(unnoticed)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path, metavar="DUMP_DIR")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    rows = [] if (options.dump / "manifest.json").is_file() else sorted(
        (path.parent for path in options.dump.glob("row*/manifest.json")),
        key=lambda row: (len(row.name), row.name))
    failed = 0
    for folder in rows or [options.dump]:
        if rows:
            print(f"{folder}:")
        failed += compare_dump(folder, options.self_test)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (BadDump, OSError, ValueError) as problem:
        sys.exit(f"compare_numpy: {problem}")
