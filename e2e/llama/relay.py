"""Between toolcrib and the model's server: notes what is asked, and adds the one thing this server needs.

Without `tool_choice` the server leaves tools out of account. So the first request of a run is given one, if a tool
is to be called at all; what the call says is up to the model.
"""

import http.client
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def relay(port, choice):
    """The address to ask, and a list of what was asked."""
    seen = []
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler(port, choice, seen))
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}/v1", seen
    finally:
        listener.shutdown()
        listener.server_close()


def handler(port, choice, seen):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            calls = [call["function"] for message in body["messages"] for call in message.get("tool_calls", [])]
            request = {"tools": len(body.get("tools", [])), "calls": calls, "status": None, "error": None}
            seen.append(request)
            if choice and not calls:
                body["tool_choice"] = {"type": "function", "function": {"name": choice}}
            server = http.client.HTTPConnection("127.0.0.1", port)
            server.request("POST", self.path, json.dumps(body), {"content-type": "application/json"})
            answer = server.getresponse()
            request["status"] = answer.status
            self.send_response(answer.status)
            self.send_header("content-type", answer.getheader("content-type", "application/json"))
            self.end_headers()
            while piece := answer.read1(65536):
                if answer.status != 200:
                    request["error"] = (request["error"] or "") + piece.decode(errors="replace")
                self.wfile.write(piece)
                self.wfile.flush()

        def log_message(self, *_):
            pass

    return Handler
