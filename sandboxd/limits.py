"""Every bound on a buffer, a wait or a count, with its reason. Bytes and seconds throughout."""

KIB = 1024
MIB = 1024 * KIB

# Messages between our own processes. A policy of 10,000 rules is about 2 MiB.
CHANNEL_MESSAGE = 16 * MIB
CHANNEL_FDS = 8

# MCP over the attached stream (tools.md): a longer line is answered with an error, the connection stays.
MCP_MESSAGE = 16 * MIB
# Kept of both ends of a longer line, to find its id there.
LINE_EDGE = 4 * KIB
# Messages up to this are parsed whole; of bigger ones only the envelope, or hostile nesting becomes memory.
MCP_PARSE = 1 * MIB
# Envelopes are walked in Python: members of one object or messages of a batch; levels, as deep as C parses.
MCP_MEMBERS = 1000
MCP_DEPTH = 1000
# What an attached stream may hold back for a reader that doesn't read; past it the other side waits.
STREAM_BUFFER = 1 * MIB
# The last of a server's stderr, shown when it dies.
STDERR_RING = 64 * KIB

# The gate: orders are argv, environment and directory; the same number stands in images/gate/orders.h.
GATE_ORDERS = 1 * MIB

# First bytes of a connection (egress.md 4).
CLIENT_HELLO = 64 * KIB
HTTP_HEAD = 64 * KIB
# Interception: certificates kept for a sandbox (about 50 KiB each); names that its authority's certificate lists.
LEAVES = 256
SIGNED_NAMES = 256
# HTTP/2: streams at once of a connection; what one stream, and all together, may have sent before it is passed on.
H2_STREAMS = 100
H2_WINDOW = 128 * KIB
H2_CONNECTION_WINDOW = 256 * KIB
# Streams that a client gave up, beyond as many that it let end: more of them is a flood.
H2_RESETS = 200
# A body is searched for placeholders of secrets so far; requests that hold one have it near their beginning.
PLACEHOLDER_BODY = 256 * KIB
PEEK = 10.0
CONNECT = 15.0
IDLE = 300.0
RESOLVE = 10.0
# In audit and learn mode, of a connection that no rule knows: what it speaks is looked at for so long and so far, then
# it passes. A server that speaks first is waited for as long.
GUESS = 1.0
GUESS_BYTES = 64
# How often the wall clock is looked at while a sandbox's policy has rules that are limited in time: it may be set.
CLOCK_LOOK = 0.5
# How long a connection to a denied web address may take to show what it speaks, before it is just reset.
DENIAL_WORDS = 0.25
# Bytes a pump may hold per direction of a connection.
PUMP_BUFFER = 256 * KIB

# A DNS query is 12 + 259 bytes and EDNS options, padded to 128 at most (RFC 8467); a reply over UDP stays unfragmented.
DNS_QUERY = 4 * KIB
DNS_UDP_REPLY = 1232

# In the namespace (sealing.md): flows at once, new a second; the same numbers stand in seal.nft.
FLOWS = 256
NEW_FLOWS_PER_SECOND = 200

# DNS over TCP: connections at once of a sandbox, and how long one may stay, whatever it does.
DNS_CONNECTIONS = 16
DNS_CONNECTION = 30.0

# Distinct names a sandbox may ever ask for: each takes one synthetic address (198.18.0.0/15).
SYNTHETIC_NAMES = 4096

# Tool calls in flight that a sandbox's gateway knows of; more open nothing. A record names the first ones.
CALLS = 256
CALLS_NAMED = 32
CALL_TEXT = 128
# Tools that one listing may have before any filter.
TOOLS_LISTED = 20_000
# Tools of an agent; pages of one listing, a server that never stops has no end.
TOOLS = 2000
TOOL_PAGES = 500
# A listing that costs a model's context so many bytes is worth a warning.
TOOLS_MANY = 100
TOOL_BYTES_MANY = 256 * KIB
# An agent's calls at once where its policy doesn't say; calls that wait for a place.
CALLS_AT_ONCE = 4
CALLS_WAITING = 1024
# Results that a second call with the same id gets again.
RESULTS_KEPT = 256
# What a record says of a result; secrets shorter than so many characters can't be told from other text.
RESULT_SUMMARY = 2 * KIB
SECRET_REDACTED = 6
# Of a call's arguments, shown to whoever is asked for approval.
QUESTION_TEXT = 4096
# Of a message that becomes Python objects: numbers, texts, members outside of texts.
MCP_VALUES = 500_000
# Rounds of a call that asks its client for something (2026-07-28).
INPUT_ROUNDS = 16
# Requests of a server (roots, sampling, elicitation) that are being answered.
SERVER_REQUESTS = 32
# A result waits so long for a listener that still takes progress.
PROGRESS_LAST = 1.0
# Telling a server that a call was cancelled, where it doesn't read.
CANCEL_SENT = 1.0
# A call, a page, a handshake where the policy doesn't say.
TOOL_CALL = 60.0
# A question that nobody answers; how often it is looked at.
APPROVAL = 3600.0
APPROVAL_LOOK = 0.2
# Denials that a tool's result names, and that are told on stderr; a name or rule of one has so many characters.
DENIALS_NAMED = 10
DENIALS_SAID = 200
DENIED_TEXT = 300

# Audit: records waiting for the disk; past it new connections wait, then are refused.
AUDIT_QUEUE = 8192
AUDIT_COMMIT = 0.02
# A text out of a hostile peer's mouth (path, name) keeps so many characters in a record; a whole record is bounded too.
AUDIT_TEXT = 2048
AUDIT_RECORD = 64 * KIB
# How long a failed store rests before it tries again, and how long closing waits for the last records.
AUDIT_RETRY = 1.0
AUDIT_CLOSE = 5.0

# Ended leases stay in the state database so long.
LEASES_KEPT = 30 * 86400.0

# SQLite: waiting for another process's lock; the write-ahead log shrinks back to this after a checkpoint.
DATABASE_BUSY = 5.0
DATABASE_LOG = 16 * MIB

# Stopping a workload: after its stdin closes, after TERM, then KILL.
STOP_EOF = 2.0
# The same while a client that still listens waits for answers.
STOP_ANSWERS = 20.0
STOP_TERM = 3.0
# After KILL its end must be known by then.
STOP_LOST = 10.0
# After its end: for a client that takes nothing more of what was written.
DRAIN = 5.0
# One request to Docker. Image commits have their own.
ENGINE = 60.0
ENGINE_COMMIT = 600.0
PROBE = 5.0
# All attempts of `sandboxd probe`.
PROBE_FULL = 120.0
GATEWAY_RESTART = 10.0
# Until a started gateway has imported itself and answers; between attempts to reach one that keeps dying.
GATEWAY_REGISTER = 15.0
GATEWAY_RETRY = 0.25
# A start gives up when so many gateways in a row died over it.
GATEWAY_TRIES = 4
# At a command's end, for warden, gateway and guardian to have cleaned up and gone.
PROCESSES_END = 10.0
# A secret given on the command line as a file or variable.
SECRET = 64 * KIB

# A workspace is searched for sockets up to so many entries (egress.md 9).
WORKSPACE_SCAN = 200_000

# The warden. What Docker answers: a listing of 10,000 containers is about 20 MiB.
ENGINE_HEAD = 64 * KIB
ENGINE_BODY = 64 * MIB
# What a container can be given: below, Docker or the gate does not start; above, it is a mistake.
MEMORY_LEAST = 6 * MIB
MEMORY_MOST = 1 << 42
MOUNTS = 16
BUILD_FILES = 64
BUILD_FILES_SIZE = 4 * MIB
# cgroup v1 only: 40 connections to oneself would pin 250 MiB uncharged (sealing.md).
SOCKET_MEMORY = 32 * MIB
# Volumes an image may declare: each is covered by a file system in memory.
VOLUMES = 64
# Pseudo terminals of a sandbox; all containers of a host share about 3,000.
TERMINALS = 64
# Orders sent → the gate's lifeline comes in; it is a fork and a connect away.
LIFELINE = 10.0
# An image's own roots; a client's authority, and its roots for Java, as text.
ROOTS_FILE = 4 * MIB
AUTHORITY = 64 * KIB
# After SIGKILL: a process in an uninterruptible wait, then Docker's own cleaning up.
STOP_KILL = 10.0
# The longest grace a client may ask for.
STOP_MOST = 600.0
# A client's sandboxes at once.
SANDBOXES = 256
# One message to the gateway; one that takes longer to read it counts as dead.
GATEWAY_SEND = 5.0
# A gateway that lived shorter failed at its start; then the next one waits, at most so long.
GATEWAY_STEADY = 2.0
GATEWAY_PAUSE = 2.0
# A policy file: 10,000 rules are about 2 MiB and 200,000 values; nothing in it nests deeper than a dozen levels.
POLICY_FILE = 4 * MIB
POLICY_NODES = 500_000
POLICY_DEPTH = 32
# Files that one policy takes together (`extends`), besides its own.
POLICY_BASES = 8
# A policy file in use is looked at so often; a change holds once it was seen twice.
POLICY_LOOK = 0.2
# Docker's start returned → runc executes the gate: a moment, longer on a busy machine.
GATE_EXECUTES = 5.0
# A package index: one answer; the page of a package with thousands of releases is about 10 MiB.
INDEX = 60.0
INDEX_PAGE = 64 * MIB
# A package image: the whole installation; the installer's last line (1,000 packages are 200 KiB); its label.
PACKAGE_BUILD = 1800.0
PACKAGE_QUIET = 10.0  # an installer that says nothing for so long is said to be at it still
PACKAGE_RESULT = 4 * MIB
PACKAGE_LOCK = 256 * KIB
# Docker finishes making a container though its client is gone: so long after, a dead warden's are looked for again.
REAP_AGAIN = 2.0
