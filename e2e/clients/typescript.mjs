// The official TypeScript SDK behind the line protocol that python.py describes.
// `node typescript.mjs 2` speaks through @modelcontextprotocol/client, `node typescript.mjs 1` through the older sdk.
// Packages are found from TOOLCRIB_E2E_NODE_MODULES, since this file does not lie beside them.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const generation = process.argv[2] ?? '2';
const found = createRequire(process.env.TOOLCRIB_E2E_NODE_MODULES + '/');
const load = name => import(pathToFileURL(found.resolve(name)).href);

const sdk =
    generation === '1'
        ? Object.assign(
              {},
              await load('@modelcontextprotocol/sdk/client/index.js'),
              await load('@modelcontextprotocol/sdk/client/stdio.js'),
              await load('@modelcontextprotocol/sdk/client/streamableHttp.js'),
          )
        : Object.assign({}, await load('@modelcontextprotocol/client'), await load('@modelcontextprotocol/client/stdio'));

/** Every message of one connection, in order. */
class Wire {
    sent = [];
    received = [];

    lastRequest(method) {
        return this.sent.findLast(m => m.method === method && 'id' in m).id;
    }

    answer(id) {
        const place = this.received.findIndex(m => m.id === id && !('method' in m));
        return [place, this.received[place]];
    }

    progress(token) {
        return this.received
            .map((message, place) => [place, message])
            .filter(([, m]) => m.method === 'notifications/progress' && m.params.progressToken === token);
    }
}

/** Writes down what passes through a transport, and changes nothing. */
function tap(transport, wire) {
    const send = transport.send.bind(transport);
    transport.send = (message, options) => {
        wire.sent.push(...[message].flat());
        return send(message, options);
    };
    let listener;
    Object.defineProperty(transport, 'onmessage', {
        get: () => listener,
        set: inner => {
            listener = inner && ((message, extra) => {
                wire.received.push(structuredClone(message));
                return inner(message, extra);
            });
        },
    });
    return transport;
}

class Connection {
    wire = new Wire();

    async connect({ target, era }) {
        const transport = target.url
            ? new sdk.StreamableHTTPClientTransport(new URL(target.url))
            : new sdk.StdioClientTransport({ ...target, stderr: 'inherit' });
        const options = generation === '1' ? {} : {
            versionNegotiation: { mode: era === '2025' ? 'legacy' : { pin: '2026-07-28' } },
        };
        this.client = new sdk.Client({ name: 'toolcrib-e2e', version: '1' }, options);
        await this.client.connect(tap(transport, this.wire));
        return { version: this.client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion ?? null };
    }

    async list() {
        const tools = [];
        let cursor;
        do {
            const from = this.wire.sent.length;
            // A list the SDK kept is no answer of the server's.
            const page = await this.client.listTools(cursor ? { cursor } : undefined, { cacheMode: 'refresh' });
            for (const request of this.wire.sent.slice(from).filter(m => m.method === 'tools/list')) {
                tools.push(...this.wire.answer(request.id)[1].result.tools);
            }
            cursor = page.nextCursor;
        } while (cursor);
        return { tools };
    }

    start(request, options) {
        const params = { name: request.name, arguments: request.arguments };
        const timeout = { timeout: (request.timeout ?? 60) * 1000 };
        return generation === '1'
            ? this.client.callTool(params, undefined, { ...timeout, ...options })
            : this.client.callTool(params, { ...timeout, ...options });
    }

    async call(request) {
        const before = this.wire.sent.length;
        let outcome = 'result';
        try {
            await this.start(request, request.progress ? { onprogress: () => {} } : {});
        } catch (error) {
            outcome = error.constructor.name;
        }
        if (!this.wire.sent.slice(before).some(m => m.method === 'tools/call')) return { outcome };
        const sent = this.wire.lastRequest('tools/call');
        const [place, answer] = this.wire.answer(sent);
        if (!answer) return { outcome: `no answer: ${outcome}` };
        const asked = this.wire.sent.find(m => m.id === sent).params._meta?.progressToken;
        const seen = asked === undefined ? [] : this.wire.progress(asked);
        return {
            outcome,
            ...('result' in answer ? { result: answer.result } : { error: answer.error }),
            progress: seen.map(([, m]) => m.params),
            progress_before_answer: seen.every(([at]) => at < place),
        };
    }

    async cancel(request) {
        const abort = new AbortController();
        let progressed = false;
        const first = new Promise(resolve => {
            this.started = () => {
                progressed = true;
                resolve('progress');
            };
        });
        const call = this.start(request, { signal: abort.signal, onprogress: this.started }).then(
            () => 'result',
            error => (abort.signal.aborted ? 'cancelled' : error.constructor.name),
        );
        const happened = await Promise.race([first, call]);
        if (happened !== 'progress') return { outcome: `ended by itself: ${happened}` };
        const sent = this.wire.lastRequest('tools/call');
        abort.abort('the end-to-end suite cancels');
        return { outcome: await call, progressed, request: sent };
    }

    async notifications() {
        return {
            methods: this.wire.received
                .filter(m => 'method' in m && !('id' in m) && m.method !== 'notifications/progress')
                .map(m => m.method),
        };
    }

    async close() {
        await this.client.close();
        return {};
    }
}

const connections = new Map();
const lines = createInterface({ input: process.stdin });
for await (const line of lines) {
    const request = JSON.parse(line);
    if (request.op === 'connect') connections.set(request.conn, new Connection());
    // One after another on a connection, as in the Python client: the last request sent is then the one asked for.
    const connection = connections.get(request.conn);
    const work = (connection.turn ?? Promise.resolve())
        .then(() => connection[request.op](request))
        .then(ok => ({ id: request.id, ok }), error => ({ id: request.id, failed: `${error.constructor.name}: ${error.message}` }))
        .then(answer => process.stdout.write(JSON.stringify(answer) + '\n'));
    connection.turn = work;
}
await Promise.allSettled([...connections.values()].map(c => c.client?.close()));
process.exit(0);
