"""Says whose node has an address, as tailscaled's LocalAPI does, for the rehearsal: tailscaled.py SOCKET"""

import http.server, json, socketserver, sys, urllib.parse

NODES = {"100.64.0.2": ("alice@example.com", None), "100.64.0.3": ("tagged-devices", ["tag:ci"]), "100.64.0.4": ("eve@example.com", None)}


class Daemon(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        asked = urllib.parse.urlsplit(self.path)
        if asked.path == "/localapi/v0/status":
            return self.say(200, {"BackendState": "Running", "TUN": True, "TailscaleIPs": ["100.64.0.1"]})
        address = urllib.parse.parse_qs(asked.query)["addr"][0].rsplit(":", 1)[0]
        if asked.path != "/localapi/v0/whois" or address not in NODES:
            return self.say(404, "no match for IP:port")
        login, tags = NODES[address]
        node = {"ID": 7, "StableID": f"n{address[-1]}CNTRL", "User": 9, "Addresses": [f"{address}/32"], "AllowedIPs": [f"{address}/32"]}
        if tags:
            node["Tags"] = tags
        self.say(200, {"Node": node, "UserProfile": {"ID": 9, "LoginName": login}, "CapMap": None})

    def say(self, status, what):
        content = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


socketserver.ThreadingUnixStreamServer(sys.argv[1], Daemon).serve_forever()
