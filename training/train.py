"""Trains the vectors of the vocabulary's pieces.

    python3 training/train.py --teacher DIR [--steps 500] [--out training/.data/table.npz]

A text's vector is the mean of its pieces' vectors; a tool's is a weighted sum of those means over its
name, server, description and parameters. A piece starts as the teacher's embedding of it through one
linear map, which is trained together with a correction per piece and a length per piece, so that a
rare word moves with the words around it. What is minimised, batch by batch:

- each query must find its tool among the others of the batch, and each text its paraphrase or
  translation (cross-entropy both ways; what the teacher finds all but equal is no mistake);
- the similarities within the batch must look like the teacher's (Kullback-Leibler divergence).

Wants PyTorch and sentence-transformers; a GPU makes it minutes, a few cores make it hours.
"""
import argparse
import gzip
import json
import math
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
DATA = HERE / ".data"
FIELDS = ["name", "server", "description", "params"]


class Corpus:
    """The arrays of prepare.py on the device; texts as rows of pieces, padded with `pad`."""

    def __init__(self, path, size, device):
        load = np.load(path)
        ends = load["ends"].astype(np.int64)
        lengths = np.diff(ends)
        width = int(lengths.max())
        rows = np.full((len(lengths), width), size, np.int32)
        rows[np.arange(width)[None, :] < lengths[:, None]] = load["pieces"]
        self.rows = torch.from_numpy(rows.astype(np.int32)).to(device)
        self.tools = torch.from_numpy(load["tools"].astype(np.int64)).to(device)
        self.pairs = torch.from_numpy(load["pairs"].astype(np.int64)).to(device)
        self.sources = list(load["sources"])


class Table(torch.nn.Module):
    def __init__(self, start, counts, dimensions):
        super().__init__()
        size = len(start)
        self.register_buffer("start", start)
        # The map starts as the principal components of the teacher's word vectors.
        centred = start - start.mean(0)
        _, _, components = torch.linalg.svd(centred.double(), full_matrices=False)
        self.map = torch.nn.Parameter(components[:dimensions].T.float().contiguous())
        self.shift = torch.nn.Parameter(-(start.mean(0) @ components[:dimensions].T.float()))
        self.own = torch.nn.Parameter(0.01 * torch.randn(size, dimensions, device=start.device))
        share = counts / counts.sum()
        self.length = torch.nn.Parameter(torch.log(1e-3 / (1e-3 + share)))
        self.fields = torch.nn.Parameter(torch.tensor([0.5, -0.5, 0.5, -1.0], device=start.device))
        self.scale = torch.nn.Parameter(torch.tensor(math.log(20.0), device=start.device))

    def vectors(self):
        known = self.start.abs().sum(1, keepdim=True) > 0
        base = (self.start @ self.map + self.shift) * known
        table = (base + self.own) * torch.exp(self.length)[:, None]
        return torch.cat([table, torch.zeros_like(table[:1])])

    def mean(self, table, rows, drop=0.0):
        size = len(table) - 1
        if drop:
            rows = torch.where(torch.rand(rows.shape, device=rows.device) < drop, size, rows)
        count = (rows != size).sum(1, keepdim=True).clamp(min=1)
        return F.embedding(rows, table).sum(1) / count

    def tool(self, table, fields, drop=0.0):
        weights = F.softplus(self.fields)
        out = 0
        for at, rows in enumerate(fields):
            part = self.mean(table, rows, drop) * weights[at]
            if drop:
                part = part * (torch.rand(len(rows), 1, device=rows.device) > drop)
            out = out + part
        return out


def trim(rows, pad):
    return rows[:, :max(1, int((rows != pad).sum(1).max()))].long()


def teach(teacher, texts, device):
    from sentence_transformers import SentenceTransformer
    model = SentenceTransformer(str(teacher), device=device)
    model.max_seq_length = 128
    if device != "cpu":
        model = model.half()
    out = model.encode(texts, batch_size=2048 if device != "cpu" else 64, convert_to_tensor=True,
                       normalize_embeddings=True, show_progress_bar=False)
    return out.float()


def contrast(a, b, scale, same):
    """Cross-entropy both ways, where what is marked `same` is no mistake."""
    logits = scale * a @ b.T
    logits = logits.masked_fill(same, -1e4)
    target = torch.arange(len(a), device=a.device)
    return 0.5 * (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target))


def imitate(a, b, scale, teacher_a, teacher_b, teacher_scale=20.0):
    ours = F.log_softmax(scale * a @ b.T, 1)
    theirs = F.log_softmax(teacher_scale * teacher_a @ teacher_b.T, 1)
    return F.kl_div(ours, theirs, reduction="batchmean", log_target=True)


def train(args, corpus, texts, vocabulary, device, report=None):
    torch.manual_seed(args.seed)
    size = len(vocabulary)
    counts = torch.bincount(corpus.rows.flatten().long(), minlength=size + 1)[:size].float() + 1
    start = teach(args.teacher, vocabulary, device)
    foreign = torch.tensor([not word.isascii() for word in vocabulary], device=device)
    start[foreign] = 0
    # The teacher's view of every English text that takes part in a pair.
    taught = torch.zeros(len(texts), 384, dtype=torch.float16, device=device)
    use = torch.zeros(len(texts), dtype=torch.bool, device=device)
    use[corpus.tools[:, 0]] = True
    use[corpus.tools[:, 3]] = True
    english = corpus.pairs[corpus.pairs[:, 4] == 1]
    use[english[:, 0]] = True
    use[corpus.pairs[:, 1]] = True
    which = use.nonzero().flatten().tolist()
    began = time.time()
    taught[which] = teach(args.teacher, [texts[i][:600] for i in which], device).half()
    docs, inverse = torch.unique(corpus.tools[:, 1:5], dim=0, return_inverse=True)
    doc_texts = [f"{texts[s]} {texts[n].replace('_', ' ')}: {texts[d]} {texts[p]}"[:600] for n, s, d, p in docs.tolist()]
    taught_docs = teach(args.teacher, doc_texts, device).half()
    print(f"the teacher read {len(which) + len(doc_texts)} texts in {time.time() - began:.0f} s", flush=True)

    table = Table(start, counts, args.dimensions).to(device)
    groups = [{"params": [table.own, table.length], "lr": args.rate}, {"params": [table.map, table.shift], "lr": args.rate / 4},
              {"params": [table.fields, table.scale], "lr": 5e-3}]
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.98))
    rates = [group["lr"] for group in groups]
    tools, pairs = corpus.tools, corpus.pairs
    # Tools in the order of their servers, so that a batch of neighbours has siblings in it.
    order = torch.argsort(tools[:, 5] * 1.0 + torch.rand(len(tools), device=device) * 0.5)
    tools, inverse = tools[order], inverse[order]
    run = 16
    # A source counts by the square root of its size, so that none drowns the others.
    def odds(column):
        many = torch.bincount(column).float().clamp(min=1)
        return (many ** -0.5)[column]
    tool_odds = odds(tools[:, 6]).cpu().numpy().astype(np.float64)
    tool_odds /= tool_odds.sum()
    weak = pairs[:, 3] == 1
    pair_odds = (odds(pairs[:, 2]) * torch.where(weak, 0.3, 1.0)).cpu().numpy().astype(np.float64)
    lines = pairs[:, 4] == 1
    choose = np.random.default_rng(args.seed)
    tool_pick = np.cumsum(tool_odds)
    english_at = lines.nonzero().flatten().cpu().numpy()
    foreign_at = (~lines).nonzero().flatten().cpu().numpy()
    picks = [(at, np.cumsum(pair_odds[at] / pair_odds[at].sum())) for at in (english_at, foreign_at) if len(at)]
    pad = size
    began = time.time()
    for step in range(args.steps):
        warm = min(1.0, step / 200)
        decay = 0.5 * (1 + math.cos(math.pi * step / args.steps)) * 0.97 + 0.03
        for group, rate in zip(optimiser.param_groups, rates):
            group["lr"] = rate * warm * decay
        optimiser.zero_grad()
        vectors = table.vectors()
        scale = table.scale.exp().clamp(max=args.most_scale)
        # Tools.
        first = np.searchsorted(tool_pick, choose.random(args.batch // run))
        at = (first[:, None] + np.arange(run)).ravel() % len(tools)
        at = torch.from_numpy(np.unique(at)).to(device)
        batch, which = tools[at], inverse[at]
        queries = corpus.rows[batch[:, 0]]
        with_server = torch.rand(len(batch), 1, device=device) < args.name_server
        servers = corpus.rows[batch[:, 2]][:, :8]
        queries = torch.cat([torch.where(with_server, servers, pad), queries], 1)
        q = F.normalize(table.mean(vectors, queries.long(), args.drop), dim=1)
        fields = [trim(corpus.rows[batch[:, 1 + f]], pad) for f in range(4)]
        d = F.normalize(table.tool(vectors, fields, args.drop), dim=1)
        tq, td = taught[batch[:, 0]].float(), taught_docs[which].float()
        eye = torch.eye(len(at), dtype=torch.bool, device=device)
        same = ((tq @ tq.T > args.same) | (which[:, None] == which[None, :])) & ~eye
        loss = contrast(q, d, scale, same)
        loss = loss + args.imitate * imitate(q, d, scale, tq, td)
        told = [loss.item()]
        # Paraphrases and translations.
        for picked, (rows, odd) in enumerate(picks):
            at = np.unique(rows[np.searchsorted(odd, choose.random(args.batch // 2)).clip(max=len(rows) - 1)])
            batch = pairs[torch.from_numpy(at).to(device)]
            a = F.normalize(table.mean(vectors, trim(corpus.rows[batch[:, 0]], pad), args.drop), dim=1)
            b = F.normalize(table.mean(vectors, trim(corpus.rows[batch[:, 1]], pad), args.drop), dim=1)
            tb = taught[batch[:, 1]].float()
            eye = torch.eye(len(batch), dtype=torch.bool, device=device)
            same = (tb @ tb.T > args.same) & ~eye
            part = contrast(a, b, scale, same)
            told.append(part.item())
            if picked == 0 and len(english_at):
                part = part + args.imitate * imitate(a, b, scale, taught[batch[:, 0]].float(), tb)
            loss = loss + args.pair_weight * part
        loss = loss + args.keep * (table.own ** 2).sum(1).mean()
        loss.backward()
        optimiser.step()
        if step % 500 == 499 or step == args.steps - 1:
            print(f"step {step + 1} {time.time() - began:.0f} s loss {' '.join(f'{x:.3f}' for x in told)} "
                  f"scale {scale.item():.1f} fields {F.softplus(table.fields).tolist()}", flush=True)
            if report:
                report(table)
    with torch.no_grad():
        return table.vectors()[:-1].cpu().numpy(), F.softplus(table.fields).detach().cpu().numpy()


def arguments():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--teacher", type=pathlib.Path, required=True, help="folder of the teacher model")
    ask.add_argument("--out", type=pathlib.Path, default=DATA / "table.npz")
    ask.add_argument("--steps", type=int, default=500)
    ask.add_argument("--batch", type=int, default=8192)
    ask.add_argument("--dimensions", type=int, default=256)
    ask.add_argument("--rate", type=float, default=1e-3)
    ask.add_argument("--drop", type=float, default=0.05)
    ask.add_argument("--imitate", type=float, default=1.0)
    ask.add_argument("--pair-weight", type=float, default=0.5)
    ask.add_argument("--keep", type=float, default=1e-3)
    ask.add_argument("--same", type=float, default=0.9)
    ask.add_argument("--name-server", type=float, default=0.25)
    ask.add_argument("--most-scale", type=float, default=40.0)
    ask.add_argument("--seed", type=int, default=1)
    return ask


def main():
    args = arguments().parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    vocabulary = (DATA / "vocabulary.txt").read_text(encoding="utf-8").split("\n")[:-1]
    with gzip.open(DATA / "texts.json.gz", "rt", encoding="utf-8") as file:
        texts = json.load(file)
    corpus = Corpus(DATA / "corpus.npz", len(vocabulary), device)
    table, fields = train(args, corpus, texts, vocabulary, device)
    np.savez(args.out, table=table.astype(np.float16), fields=fields)


if __name__ == "__main__":
    main()
