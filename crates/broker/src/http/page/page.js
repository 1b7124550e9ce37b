// The page of a node: what `/v1/watch` says every second, drawn. Text of clients is only ever set as text.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const POINTS = 300; // five minutes
const CLIENTS = 100; // rows
const EVENTS = 200; // lines
const history = []; // {in, out, between, cpu}
const known = new Map(); // nodes by identity, as they were
let role = null, last = null, clientTimer = null;

const at = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const count = (value) => (value === null || value === undefined ? "–" : number.format(value));

function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

function draw(parent, name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

const cell = (label, text, kind) => make("td", { "data-label": label, ...(kind ? { class: kind } : {}) }, text);

function happened(text, kind) {
  const line = make("li", kind ? { class: kind } : {}, make("time", {}, new Date().toLocaleTimeString()), ` ${text}`);
  at("events").prepend(line);
  while (at("events").children.length > EVENTS) at("events").lastChild.remove();
}

function complain(text) {
  at("alert").hidden = !text;
  at("alert").textContent = text || "";
}

function pill(id, text, kind) {
  const element = at(id);
  if (element.textContent !== text) element.textContent = text;
  element.className = `pill ${kind}`;
}

const byName = (nodes) => [...nodes].sort((a, b) => (a.name + a.id < b.name + b.id ? -1 : 1));

// --- What comes every second

function show(entry) {
  noteChanges(entry);
  last = entry;
  at("name").textContent = entry.name;
  document.title = `${entry.ready ? "" : "✗ "}${entry.name} – Thicket`;
  pill("ready", entry.ready ? "ready" : `not ready: ${entry.not_ready}`, entry.ready ? "good" : "bad");
  const { serves, members, reachable } = entry.membership;
  at("membership").textContent =
    `${serves ? "Serving" : "No majority: not serving"}, ${reachable} of ${members} members reachable, routing ${entry.routing}` +
    (entry.disagreements.length ? `. ${entry.disagreements.join(" ")}` : "");
  at("membership").className = serves && reachable === members && !entry.disagreements.length ? "note" : "note warn";
  remember(entry);
  drawPicture(entry);
  drawCharts();
  showNodes(entry);
  showHere(entry);
  showTopics(entry);
}

function noteChanges(entry) {
  const now = new Map(entry.nodes.map((node) => [node.id, node]));
  for (const [id, node] of now) {
    const before = known.get(id);
    const is = stateOf(node)[0];
    if (last && !before) happened(`${node.name} joined`, "good");
    else if (before && before.state !== is) happened(`${node.name}: ${before.state} → ${is}`, is === "up" ? "good" : "bad");
    known.set(id, { name: node.name, state: is });
  }
  for (const [id, before] of [...known]) {
    if (now.has(id)) continue;
    happened(`${before.name} left`);
    known.delete(id);
  }
  if (last && last.ready !== entry.ready) happened(entry.ready ? "this node is ready" : `this node is not ready: ${entry.not_ready}`, entry.ready ? "good" : "bad");
  if (last && last.membership.serves !== entry.membership.serves) happened(entry.membership.serves ? "this side has a majority" : "this side has no majority", entry.membership.serves ? "good" : "bad");
}

function stateOf(node) {
  const state = node.state;
  if (!node.is_self && !node.reachable) return ["down", "bad"];
  if (state && state.draining) return ["draining", "warn"];
  if (state && state.full) return ["full", "warn"];
  return ["up", "good"];
}

function remember(entry) {
  const point = { in: 0, out: 0, between: 0, cpu: 0 };
  for (const { state } of entry.nodes) {
    if (!state) continue;
    point.in += state.external.in_messages_per_s;
    point.out += state.external.out_messages_per_s;
    point.between += state.internal.out_messages_per_s;
    point.cpu = Math.max(point.cpu, state.cpu_ratio || 0);
  }
  history.push(point);
  if (history.length > POINTS) history.shift();
}

// --- Pictures

function drawPicture(entry) {
  const picture = at("picture");
  while (picture.children.length > 1) picture.lastChild.remove();
  const nodes = byName(entry.nodes);
  const places = new Map();
  nodes.forEach((node, index) => {
    const angle = (2 * Math.PI * index) / nodes.length - Math.PI / 2;
    const single = nodes.length === 1 ? 0 : 1;
    const place = { x: 320 + single * 225 * Math.cos(angle), y: 195 + single * 135 * Math.sin(angle), node };
    places.set(node.name, place).set(node.id, place);
  });
  const edges = new Set(entry.tree.edges.map(([a, b]) => [a, b].sort().join("\n")));
  const traffic = new Map(entry.link_traffic.map((it) => [it.node, it]));
  const labels = [];
  for (const { nodes: [from, to], rtt_ms: rtt } of entry.links) {
    const [a, b] = [places.get(from), places.get(to)];
    if (!a || !b) continue;
    const isTree = entry.routing !== "mesh" && edges.has([from, to].sort().join("\n"));
    draw(picture, "line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y, class: isTree ? "link tree" : "link" });
    const own = a.node.is_self ? b.node : b.node.is_self ? a.node : null;
    const seen = own && own.rtt_us !== null ? own.rtt_us / 1000 : rtt;
    const rates = own && traffic.get(own.name);
    const text = `${seen < 1 ? seen.toFixed(2) : seen.toFixed(1)} ms${rates ? `, ${bytes(rates.bytes_per_s)}/s` : ""}`;
    labels.push({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 + 4, text });
  }
  for (const { x, y, text } of labels) draw(picture, "text", { x, y, class: "small" }, text);
  for (const { x, y, node } of new Set(places.values())) {
    const [state] = stateOf(node);
    const kind = state === "down" ? "node down" : state === "up" ? "node" : "node busy";
    const radius = nodes.length > 16 ? 14 : 26;
    if (node.is_self) draw(picture, "circle", { cx: x, cy: y, r: radius + 5, class: "ring" });
    const circle = draw(picture, "circle", { cx: x, cy: y, r: radius, class: kind });
    draw(circle, "title", {}, `${node.name}: ${state}, ${node.clients} clients`);
    draw(picture, "text", { x, y: y + 5 }, state === "down" ? "✗" : number.format(node.clients));
    const name = node.name.length > 22 ? `${node.name.slice(0, 21)}…` : node.name;
    draw(picture, "text", { x, y: y + radius + 22, class: "name" }, name);
  }
}

function drawCharts() {
  const now = history[history.length - 1];
  at("rate-now").textContent = `${count(now.in)} in, ${count(now.out)} out`;
  at("cpu-now").textContent = `${Math.round(now.cpu * 100)} %`;
  const most = Math.max(10, ...history.map((it) => Math.max(it.in, it.out, it.between)));
  chart(at("rates"), most, ["in", "out", "between"], count(most));
  chart(at("cpu"), 1, ["cpu"], "100 %");
}

function chart(svg, most, keys, top) {
  svg.replaceChildren();
  draw(svg, "line", { x1: 0, y1: 88, x2: 300, y2: 88, class: "axis" });
  draw(svg, "line", { x1: 0, y1: 14, x2: 300, y2: 14, class: "axis" });
  draw(svg, "text", { x: 2, y: 10, class: "label" }, top);
  for (const key of keys) {
    const points = history.map((it, index) => {
      const x = 300 - (history.length - 1 - index) * (300 / (POINTS - 1));
      return `${x.toFixed(1)},${(88 - (Math.min(it[key], most) / most) * 74).toFixed(1)}`;
    });
    draw(svg, "polyline", { points: points.join(" "), class: key === "cpu" ? "out" : key });
  }
}

// --- Tables

function showNodes(entry) {
  const rows = byName(entry.nodes).map((node) => {
    const { state } = node;
    const [word, kind] = stateOf(node);
    const name = make("td", {}, node.name);
    if (!node.is_self && state && state.http_address) {
      name.replaceChildren(make("a", { href: `http://${state.http_address}/` }, node.name));
    } else if (node.is_self) {
      name.append(make("span", { class: "note" }, " (this node)"));
    }
    const cpu = make("td", { "data-label": "CPU" });
    const memory = make("td", { "data-label": "Memory" });
    if (state && state.cpu_ratio !== null) cpu.append(meter(state.cpu_ratio, "CPU"), ` ${Math.round(state.cpu_ratio * 100)} %`);
    if (state && state.memory_bytes !== null) {
      if (state.memory_limit_bytes) memory.append(meter(state.memory_bytes / state.memory_limit_bytes, "Memory"), " ");
      memory.append(bytes(state.memory_bytes));
    }
    const rate = (pick) => (state ? count(pick(state)) : "–");
    return make("tr", {}, name, cell("State", word, kind), cpu, memory, cell("Clients", count(node.clients), "n"),
      cell("In/s", rate((it) => it.external.in_messages_per_s), "n"),
      cell("Out/s", rate((it) => it.external.out_messages_per_s), "n"),
      cell("Between/s", rate((it) => it.internal.in_messages_per_s + it.internal.out_messages_per_s), "n"),
      cell("RTT", node.rtt_us === null ? "–" : `${(node.rtt_us / 1000).toFixed(2)} ms`, "n"),
      cell("Address", node.address, "whole"));
  });
  refresh(at("node-rows"), rows);
}

function meter(value, label) {
  return make("meter", { min: 0, max: 1, low: 0.7, high: 0.9, optimum: 0, value: Math.min(1, value).toFixed(3), "aria-label": label });
}

// Rows are replaced where they differ only, so that what is focused or selected stays.
function refresh(body, rows) {
  rows.forEach((row, index) => {
    const before = body.children[index];
    if (!before) body.append(row);
    else if (before.outerHTML !== row.outerHTML) before.replaceWith(row);
  });
  while (body.children.length > rows.length) body.lastChild.remove();
}

function showHere(entry) {
  const { traffic, disk } = entry;
  const missing = traffic.under_replicated_sessions;
  const facts = [
    ["Version", entry.version],
    ["Clients, sessions", `${count(traffic.connections)}, ${count(traffic.sessions)}`],
    ["Subscriptions", count(traffic.subscriptions)],
    ["Under-replicated sessions", count(missing), missing > 0 ? "warn" : "good"],
    ["Backups held for others", count(traffic.backups)],
    ["Retained messages", count(traffic.retained_messages)],
    ["Dropped messages", count(traffic.dropped_messages)],
    ["Unacknowledged messages", count(traffic.unacknowledged_messages)],
  ];
  if (disk) facts.push(["Disk", `${disk.full ? "full, " : ""}${bytes(disk.free_bytes)} of ${bytes(disk.size_bytes)} free, logs ${bytes(disk.log_bytes)}`, disk.full ? "bad" : ""]);
  for (const { file, days } of entry.certificates) {
    facts.push([`Certificate ${file}`, days < 0 ? "expired" : `${days} days left`, days < 0 ? "bad" : days <= 30 ? "warn" : ""]);
  }
  const list = facts.flatMap(([term, text, kind]) => [make("dt", {}, term), make("dd", kind ? { class: kind } : {}, text)]);
  refresh(at("here"), list);
  at("drain").hidden = role !== "admin" || entry.draining;
}

function showTopics(entry) {
  const names = new Map(entry.nodes.map((node) => [node.id, node.name]));
  const rows = entry.topics.map((it) => make("tr", {}, make("td", {}, it.topic), cell("Node", names.get(it.node) || it.node), cell("Messages/s", it.messages_per_s.toFixed(1), "n")));
  refresh(at("topic-rows"), rows.length ? rows : [make("tr", {}, make("td", { colspan: 3, class: "note" }, "Nobody publishes often enough to be listed."))]);
}

// --- Clients

async function ask(path, options) {
  const answer = await fetch(path, options);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.error || `${path} answers ${answer.status}`);
  return body;
}

const post = (path, body) => ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

async function showClients() {
  clearTimeout(clientTimer);
  const search = at("search").value.trim();
  try {
    const order = at("order").value;
    const page = await ask(`/v1/clients?limit=${CLIENTS}&order=${order}&search=${encodeURIComponent(search)}`);
    if (search !== at("search").value.trim() || order !== at("order").value) return;
    const missing = page.unanswered.map((it) => ` ${it.node} is missing: ${it.why}.`).join("");
    const more = (page.next ? `The first ${CLIENTS}; search to see others.` : `${page.clients.length} shown.`) + missing;
    if (at("client-count").textContent !== more) at("client-count").textContent = more;
    refresh(at("client-rows"), page.clients.map(clientRow));
  } catch (error) {
    at("client-count").textContent = error.message;
  }
  clientTimer = setTimeout(showClients, 3000);
}

const VERSIONS = { 3: "3.1", 4: "3.1.1", 5: "5.0" };

function clientRow(it) {
  const action = make("td", {});
  if (role === "admin" && it.connected) {
    action.append(make("button", { type: "button", "data-client": it.client_id, ...(it.user_name === null ? {} : { "data-user": it.user_name }), "aria-label": `Kick ${it.client_id}` }, "Kick…"));
  }
  return make("tr", {}, make("td", {}, it.client_id), cell("User", it.user_name ?? ""), cell("Node", it.node), cell("State", it.connected ? "connected" : "away", it.connected ? "good" : ""),
    cell("MQTT", VERSIONS[it.protocol_version] || it.protocol_version), cell("Address", it.peer ?? ""), cell("Subscriptions", count(it.subscriptions), "n"),
    cell("Messages/s", it.messages_per_s.toFixed(1), "n"), cell("Queued", count(it.queued_messages), "n"),
    cell("Oldest", it.oldest_queued_ms === null ? "" : `${(it.oldest_queued_ms / 1000).toFixed(1)} s`, "n"), cell("In flight", count(it.inflight_messages), "n"), cell("Dropped", count(it.dropped_messages), it.dropped_messages ? "n warn" : "n"),
    cell("Backups", count(it.backups), "n"), action);
}

// --- What an admin does

function confirmed(title, text, yes) {
  const dialog = at("confirm");
  at("confirm-title").textContent = title;
  at("confirm-text").textContent = text;
  at("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

async function act(what, order) {
  try {
    complain(null);
    await order();
    happened(what);
  } catch (error) {
    complain(`${what}: ${error.message}`);
  }
}

async function kick(button) {
  const { client, user } = button.dataset;
  if (!(await confirmed(`Kick ${client}?`, "Its connection ends (0x98) and its will goes out. Its session stays, and it may connect again.", "Kick"))) return;
  await act(`kicked ${client}`, () => post("/v1/kick", { client_id: client, user_name: user ?? null, end_session: false }));
  showClients();
}

async function drain() {
  if (!(await confirmed(`Drain ${last.name}?`, "It lets nobody in any more, hands its sessions to the nodes with their backups and sends its clients away. Only a restart ends this.", "Drain"))) return;
  await act("draining this node", async () => {
    for (;;) {
      const left = await post("/v1/drain", {});
      if (left.connections + left.sessions === 0) return happened("drained: this node can be stopped", "good");
      if (left.connections <= left.sessions && !last.nodes.some((node) => node.reachable && !node.is_self)) throw new Error(`no other node is there for ${left.sessions} sessions`);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  });
}

// --- Start

function watch() {
  const source = new EventSource("/v1/watch");
  source.addEventListener("open", () => pill("live", "live", "good"));
  source.addEventListener("message", (event) => {
    pill("live", "live", "good");
    show(JSON.parse(event.data));
  });
  source.addEventListener("error", () => {
    pill("live", "no answer: trying again", "bad");
    // A browser gives up after an answer that is no stream, such as 503.
    if (source.readyState === EventSource.CLOSED) setTimeout(watch, 3000);
  });
}

async function start() {
  at("search-form").addEventListener("submit", (event) => event.preventDefault());
  at("search").addEventListener("input", () => { clearTimeout(clientTimer); clientTimer = setTimeout(showClients, 150); });
  at("order").addEventListener("change", showClients);
  at("client-rows").addEventListener("click", (event) => { const button = event.target.closest("button"); if (button) kick(button); });
  at("drain").addEventListener("click", drain);
  watch();
  try {
    role = (await ask("/v1/whoami")).role;
    at("role").textContent = role === "admin" ? "admin" : role === "viewer" ? "viewer: read-only" : "read-only: the HTTP API has no users";
  } catch (error) {
    complain(error.message);
  }
  showClients();
}

start();
