// The page of a node: what `/v1/watch` says every second, drawn, and a subscriber. Text of clients is only ever set as text.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const POINTS = 300; // five minutes
const CLIENTS = 100; // rows
const EVENTS = 200; // lines
const POINTED = document.getElementById("pointed").textContent; // of the legend
const LATENCY_S = 60; // the time that latencies are shown of
const history = []; // {in, out, between, cpu}
const deliveries = []; // of the last LATENCY_S events
const known = new Map(); // nodes by identity, as they were
let role = null, last = null, lastTime = null, clientTimer = null, ledger = null;

const at = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");
const count = (value) => (value === null || value === undefined ? "–" : number.format(value));

const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

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
  lastTime = new Date();
  at("name").textContent = entry.name;
  document.title = `${entry.ready ? "" : "✗ "}${entry.name} – Thicket`;
  pill("ready", entry.ready ? "ready" : `not ready: ${entry.not_ready}`, entry.ready ? "good" : "bad");
  const { serves, members, reachable } = entry.membership;
  at("membership").textContent =
    `${serves ? "Serving" : "No majority: not serving"}, ${reachable} of ${members} members reachable, routing ${entry.routing}` +
    (hasTree(entry) ? ` with the root ${entry.tree.root}` : "") +
    (entry.disagreements.length ? `. ${entry.disagreements.join(" ")}` : "");
  at("membership").className = serves && reachable === members && !entry.disagreements.length ? "note" : "note warn";
  remember(entry);
  drawPicture(entry);
  drawCharts();
  showNodes(entry);
  showHere(entry);
  showReplication(entry);
  showLatency(entry);
  showTopics(entry);
  offerListeners(entry);
}

// Whether messages go over the tree of all nodes.
function hasTree({ routing, tree }) {
  return routing !== "mesh" && tree.edges.length > 0;
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

// A node or a link, with what is known of it. Tab leads to the first one, arrow keys to the others.
function drawSpot(parent, key, text, tabindex) {
  const spot = draw(parent, "g", { class: "spot", "data-key": key, role: "img", "aria-label": text, tabindex });
  draw(spot, "title", {}, text);
  return spot;
}

function aboutNode(node, word, isRoot) {
  const facts = [word];
  const { state } = node;
  if (word !== "down") facts.push(plural(node.clients, "client"));
  if (state && word !== "down") {
    if (state.cpu_ratio !== null) facts.push(`CPU ${Math.round(state.cpu_ratio * 100)} %`);
    if (state.memory_bytes !== null) facts.push(`memory ${bytes(state.memory_bytes)}`);
    facts.push(`${count(state.external.in_messages_per_s)} messages/s in, ${count(state.external.out_messages_per_s)} out`);
  }
  if (isRoot) facts.push("root of the tree");
  return `${node.name}: ${facts.join(", ")}`;
}

// What the pointer or the keyboard is at, below the picture.
function showPointed() {
  const spot = at("picture").querySelector(".spot:hover") || at("picture").querySelector(".spot:focus");
  const text = spot ? spot.getAttribute("aria-label") : POINTED;
  if (at("pointed").textContent !== text) at("pointed").textContent = text;
}

function walkPicture(event) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const spots = [...at("picture-nodes").children, ...at("picture-links").children];
  const here = spots.indexOf(document.activeElement);
  if (!step || here < 0) return;
  event.preventDefault();
  spots[(here + step + spots.length) % spots.length].focus();
}

function drawPicture(entry) {
  // Updated in place, so that what is hovered or focused stays.
  const [lines, circles] = [document.createElementNS(SVG, "g"), document.createElementNS(SVG, "g")];
  at("picture-labels").replaceChildren();
  const nodes = byName(entry.nodes);
  const places = new Map();
  nodes.forEach((node, index) => {
    const angle = (2 * Math.PI * index) / nodes.length - Math.PI / 2;
    const single = nodes.length === 1 ? 0 : 1;
    const place = { x: 320 + single * 225 * Math.cos(angle), y: 195 + single * 135 * Math.sin(angle), node };
    places.set(node.name, place).set(node.id, place);
  });
  const edges = new Set(entry.tree.edges.map(([a, b]) => [a, b].sort().join("\n")));
  const root = hasTree(entry) ? places.get(entry.tree.root) : null;
  const traffic = new Map(entry.link_traffic.map((it) => [it.node, it]));
  const radius = nodes.length > 16 ? 14 : 26;
  const labels = [];
  for (const { nodes: [from, to], rtt_ms: rtt } of entry.links) {
    const [a, b] = [places.get(from), places.get(to)];
    if (!a || !b) continue;
    const isTree = hasTree(entry) && edges.has([from, to].sort().join("\n"));
    const own = a.node.is_self ? b.node : b.node.is_self ? a.node : null;
    const rates = own && traffic.get(own.name);
    const text = `${roundTrip(own, rtt)}${rates ? `, ${bytes(rates.bytes_per_s)}/s` : ""}`;
    const spot = drawSpot(lines, [from, to].sort().join("\n"), `${from} – ${to}: round trip ${text}${isTree ? ", part of the tree" : ""}`, -1);
    const ends = { x1: a.x, y1: a.y, x2: b.x, y2: b.y };
    draw(spot, "line", { ...ends, class: isTree ? "link tree" : "link" });
    draw(spot, "line", { ...ends, class: "reach" });
    // Links of this node have the more exact values: they come first where there is no space for all.
    labels[own ? "unshift" : "push"]({ a, b, text });
  }
  const taken = [...new Set(places.values())].map(({ x, y }) => ({ x, y: y + 10, width: 2 * radius + 40, height: 2 * radius + 34 }));
  refresh(at("picture-links"), [...lines.children]);
  for (const { a, b, text } of labels) drawLabel(at("picture-labels"), a, b, text, taken);
  for (const { x, y, node } of new Set(places.values())) {
    const [state] = stateOf(node);
    const kind = state === "down" ? "node down" : state === "up" ? "node" : "node busy";
    const isRoot = root !== null && root !== undefined && root.node === node;
    const spot = drawSpot(circles, node.id, aboutNode(node, state, isRoot), circles.children.length ? -1 : 0);
    draw(spot, "circle", { cx: x, cy: y, r: radius, class: kind });
    if (node.is_self) draw(spot, "circle", { cx: x, cy: y, r: radius + 5, class: "ring" });
    draw(spot, "text", { x, y: y + 5 }, state === "down" ? "✗" : number.format(node.clients));
    const name = node.name.length > 22 ? `${node.name.slice(0, 21)}…` : node.name;
    draw(spot, "text", { x, y: y + radius + 22, class: "name" }, isRoot ? `${name} (root)` : name);
  }
  refresh(at("picture-nodes"), [...circles.children]);
  showPointed();
}

// Where on the line from `a` to `b` a label covers no other and no node, the middle first; it is taken then.
function freePlace(a, b, { width, height }, taken) {
  for (const part of [0.5, 0.4, 0.6, 0.33, 0.67, 0.27, 0.73]) {
    const [x, y] = [a.x + part * (b.x - a.x), a.y + part * (b.y - a.y)];
    const covers = (it) => Math.abs(it.x - x) * 2 < it.width + width && Math.abs(it.y - y) * 2 < it.height + height;
    if (taken.some(covers)) continue;
    taken.push({ x, y, width, height });
    return { x, y };
  }
  return null;
}

// With the line interrupted behind it. Where there is no place for it, only the title of the line has its text.
function drawLabel(picture, a, b, text, taken) {
  const label = draw(picture, "text", { x: 0, y: 0, class: "small" }, text);
  const box = label.getBBox();
  const size = { width: box.width + 8, height: box.height };
  const free = freePlace(a, b, size, taken);
  if (!free) return label.remove();
  label.setAttribute("x", free.x);
  label.setAttribute("y", free.y - box.height / 2 - box.y);
  const behind = draw(picture, "rect", { x: free.x - size.width / 2, y: free.y - size.height / 2, ...size, class: "behind" });
  label.before(behind);
}

// Of the link with a node, or of one between two other nodes, which publish it in steps: 0 below one millisecond.
function roundTrip(own, published) {
  if (own && own.rtt_us === null) return "–";
  const ms = own ? own.rtt_us / 1000 : published;
  if (!own && ms === 0) return "< 1 ms";
  return `${ms < 1 ? ms.toFixed(2) : ms.toFixed(1)} ms`;
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
    draw(svg, "polyline", { points: points.join(" "), class: key === "cpu" ? "in" : key });
  }
}

// --- Tables

function showNodes(entry) {
  const rows = byName(entry.nodes).map((node) => {
    const { state } = node;
    const [word, kind] = stateOf(node);
    const clients = word === "down" ? "–" : count(node.clients);
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
    return make("tr", { "data-key": node.id }, name, cell("State", word, kind), cpu, memory, cell("Clients", clients, "n"),
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

// Rows are found again by their keys (without one by their places) and updated in place, so that what is focused, selected or open stays.
function refresh(body, rows) {
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const selected = getSelection().anchorNode;
  const place = [...body.children].findIndex((row) => row.contains(focused));
  const keyOf = (row, index) => row.dataset.key ?? index;
  const before = new Map([...body.children].map((row, index) => [keyOf(row, index), row]));
  const now = rows.map((row, index) => {
    const known = before.get(keyOf(row, index));
    if (!known || known.nodeName !== row.nodeName) return row;
    before.delete(keyOf(row, index));
    update(known, row);
    return known;
  });
  const kept = new Set(now);
  for (const row of [...body.children]) if (!kept.has(row)) row.remove();
  // An element that is moved loses the focus: the others are moved around it.
  const held = (what) => (what ? now.findIndex((row) => row.contains(what)) : -1);
  const still = Math.max(0, held(focused) >= 0 ? held(focused) : held(selected));
  if (now.length && now[still].parentNode !== body) body.append(now[still]);
  for (let index = still - 1; index >= 0; index -= 1) if (now[index].nextElementSibling !== now[index + 1]) now[index + 1].before(now[index]);
  for (let index = still + 1; index < now.length; index += 1) if (now[index].previousElementSibling !== now[index - 1]) now[index - 1].after(now[index]);
  // What was focused is gone: the keyboard goes on beside it.
  if (!focused || (focused.isConnected && !focused.hidden)) return;
  const beside = focused.isConnected ? focused.closest("tr") : now[Math.min(place, now.length - 1)];
  const next = beside && beside.querySelector("button:not([hidden]), a");
  if (next) next.focus();
}

// Makes an element like another one, in place.
function update(element, model) {
  for (const { name } of [...element.attributes]) if (!model.hasAttribute(name)) element.removeAttribute(name);
  for (const { name, value } of model.attributes) if (element.getAttribute(name) !== value) element.setAttribute(name, value);
  const before = [...element.childNodes];
  const now = [...model.childNodes];
  now.forEach((child, index) => {
    const known = before[index];
    if (!known) element.append(child);
    else if (known.nodeName !== child.nodeName) known.replaceWith(child);
    else if (child instanceof Element) update(known, child);
    else if (known.data !== child.data) known.data = child.data;
  });
  for (const child of before.slice(now.length)) child.remove();
}

function showHere(entry) {
  const { traffic, disk } = entry;
  const facts = [
    ["Version", entry.version],
    ["Clients, sessions", `${count(traffic.connections)}, ${count(traffic.sessions)}`],
    ["Subscriptions", count(traffic.subscriptions)],
    ["Retained messages", count(traffic.retained_messages)],
    ["Dropped messages", count(traffic.dropped_messages)],
    ["Unacknowledged messages", count(traffic.unacknowledged_messages)],
  ];
  if (disk) facts.push(["Disk", `${disk.full ? "full, " : ""}${bytes(disk.free_bytes)} of ${bytes(disk.size_bytes)} free, logs ${bytes(disk.log_bytes)}`, disk.full ? "bad" : ""]);
  for (const { file, days } of entry.certificates) {
    facts.push([`Certificate ${file}`, days < 0 ? "expired" : `${days} days left`, days < 0 ? "bad" : days <= 30 ? "warn" : ""]);
  }
  showFacts("here", facts);
  const buttons = [at("drain"), at("undrain")];
  const focused = buttons.indexOf(document.activeElement);
  buttons.forEach((button, index) => { button.hidden = role !== "admin" || entry.draining !== (index === 1); });
  if (focused >= 0 && buttons[focused].hidden) buttons[1 - focused].focus();
}

function showFacts(id, facts) {
  const list = facts.flatMap(([term, text, kind]) => [make("dt", {}, term), make("dd", kind ? { class: kind } : {}, text)]);
  refresh(at(id), list);
}

function showReplication(entry) {
  const { traffic } = entry;
  const missing = traffic.under_replicated_sessions;
  const waiting = entry.nodes.filter((node) => node.hinted_messages > 0);
  const facts = [
    ["Under-replicated sessions of this node", count(missing), missing > 0 ? "warn" : "good"],
    ["Backups held for other nodes", count(traffic.backups)],
    ["Not yet acknowledged by backups", ledger ? bytes(ledger.total.backup_stream_bytes) : "–"],
    ["Sessions merged after a partition", count(traffic.merged_sessions)],
    ["Hinted handoff: messages dropped", count(traffic.hinted_dropped_messages), traffic.hinted_dropped_messages > 0 ? "warn" : ""],
  ];
  for (const node of waiting) facts.push([`Hinted handoff for ${node.name}`, `${count(node.hinted_messages)} messages, ${bytes(node.hinted_bytes)}`, "warn"]);
  showFacts("replication", facts);
}

function duration(seconds) {
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds} s`;
}

// Deliveries of the last minute, by how long they took; the node counts since its start, and the page looks since it was opened.
function showLatency({ deliveries: now }) {
  deliveries.push(now);
  if (deliveries.length > LATENCY_S + 1) deliveries.shift();
  const when = deliveries.length > LATENCY_S ? "in the last minute" : "since this page was opened";
  const before = deliveries[0];
  const since = (index) => now.buckets[index].count - before.buckets[index].count;
  const bars = now.buckets.map((bucket, index) => ({ label: `≤ ${duration(bucket.within_s)}`, bound: duration(bucket.within_s), count: since(index) }));
  bars.push({ label: "more", bound: null, count: now.beyond - before.beyond });
  const all = bars.reduce((sum, bar) => sum + bar.count, 0);
  const within = (part) => {
    let sum = 0;
    const bar = bars.find((it) => (sum += it.count) >= all * part);
    return bar.bound === null ? `more than ${bars[bars.length - 2].bound}` : `within ${bar.bound}`;
  };
  at("latency-now").textContent = all
    ? `${count(all)} deliveries ${when}: half ${within(0.5)}, 99 % ${within(0.99)}. From when this node has read a message until it is written to the client.`
    : `No deliveries ${when}.`;
  const svg = at("latency");
  svg.replaceChildren();
  draw(svg, "line", { x1: 0, y1: 92, x2: 300, y2: 92, class: "axis" });
  const most = Math.max(1, ...bars.map((bar) => bar.count));
  const width = 300 / bars.length;
  bars.forEach((bar, index) => {
    const height = bar.count && Math.max(2, (bar.count / most) * 76);
    const x = index * width;
    draw(svg, "rect", { x: x + 2, y: 92 - height, width: width - 4, height, class: "bar" });
    if (bar.count) draw(svg, "text", { x: x + width / 2, y: 88 - height, class: "value" }, short(bar.count));
    draw(svg, "text", { x: x + width / 2, y: 104, class: "tick" }, bar.bound === null ? "more" : bar.bound);
  });
}

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const short = (value) => (value < 1000 ? String(value) : compact.format(value));

async function showMemory() {
  try {
    ledger = await ask("/v1/memory");
    const { total, resident_bytes: resident, limit_bytes: limit } = ledger;
    at("memory-now").textContent = `${bytes(resident)} in memory${limit ? `; new clients are refused above ${bytes(limit)}` : ""}. What is counted:`;
    const parts = [
      ["Queues of sessions", total.queued_bytes],
      ["Sent and not acknowledged", total.inflight_bytes],
      ["Backups of other nodes' sessions", total.backup_bytes],
      ["On the way to backups", total.backup_stream_bytes],
      ["Retained messages", ledger.retained_bytes],
      ["Out-buffers of connections", total.out_buffer_bytes],
      ["In-buffers of connections", total.in_buffer_bytes],
      ["Links to other nodes", ledger.link_bytes],
      ["Between threads", ledger.handed_bytes + total.handed_bytes],
      ["Hinted handoff", ledger.hinted_bytes],
      ["Wills held for other nodes", total.held_will_bytes],
      ["Subscription filters", total.filter_bytes],
      ["Wills of sessions", total.will_bytes],
    ];
    const most = Math.max(1, ...parts.map(([, value]) => value));
    const list = parts.flatMap(([name, value]) => {
      const bar = make("meter", { min: 0, max: 1, value: (value / most).toFixed(3), "aria-hidden": "true" });
      return [make("dt", {}, name), make("dd", {}, bar, ` ${bytes(value)}`)];
    });
    refresh(at("memory"), list);
  } catch (error) {
    at("memory-now").textContent = error.message;
  }
  setTimeout(showMemory, 5000);
}

// A number that is known within a factor of 1.5.
const about = (value) => `~${value >= 1 ? count(Math.round(value)) : value.toFixed(1)}`;

function showTopics(entry) {
  const names = new Map(entry.nodes.map((node) => [node.id, node.name]));
  const rows = entry.topics.map((it) => make("tr", { "data-key": `${it.node} ${it.topic}` }, make("td", {}, it.topic), cell("Node", names.get(it.node) || it.node), cell("Messages/s", about(it.messages_per_s), "n")));
  refresh(at("topic-rows"), rows.length ? rows : [make("tr", {}, make("td", { colspan: 3, class: "note" }, "Nobody publishes often enough to be listed."))]);
}

// --- Clients

async function ask(path, options) {
  const answer = await fetch(path, options);
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.detail || body.error || `${path} answers ${answer.status}`);
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
  const action = make("td", { class: "actions" });
  // Clients of tenants may have the same identifier.
  const name = it.topic_prefix === null ? it.client_id : `${it.client_id} (${it.topic_prefix})`;
  if (role === "admin") {
    const data = { type: "button", "data-client": it.client_id, "data-prefix": it.topic_prefix ?? "", "data-name": name, ...(it.user_name === null ? {} : { "data-user": it.user_name }), ...(it.peer === null ? {} : { "data-peer": it.peer }) };
    // Always there, so that the other button stays where it is when the client leaves.
    action.append(make("button", { ...data, "data-act": "kick", "aria-label": `Kick ${name}`, ...(it.connected ? {} : { hidden: "" }) }, "Kick…"));
    action.append(make("button", { ...data, "data-act": "ban", "aria-label": `Ban ${name}` }, "Ban…"));
  }
  return make("tr", { "data-key": it.session_name }, make("td", {}, name), cell("User", it.user_name ?? "", it.user_name === null ? "" : "long"), cell("Node", it.node), cell("State", it.connected ? "connected" : "away", it.connected ? "good" : ""),
    cell("MQTT", VERSIONS[it.protocol_version] ?? ""), cell("Address", it.peer ?? ""), cell("Subscriptions", count(it.subscriptions), "n"),
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

async function act(what, order, done = what) {
  try {
    complain(null);
    await order();
    happened(done);
  } catch (error) {
    complain(`${what}: ${error.message}`);
  }
}

async function kick(button) {
  const { client, user, prefix, name } = button.dataset;
  if (!(await confirmed(`Kick ${name}?`, "Its connection ends (0x98) and its will is published. Its session stays, and it may connect again.", "Kick"))) return;
  await act(`kicked ${name}`, () => post("/v1/kick", { client_id: client, user_name: user ?? "", topic_prefix: prefix, end_session: false }));
  showClients();
}

// What a ban may name of a client: `about` becomes the body of the request.
function subjects({ client, user, peer }) {
  const choices = [{ text: `client identifier ${client}`, about: { client_id: client } }];
  if (user !== undefined) {
    choices[0].text += " of any user";
    choices.unshift({ text: `client identifier ${client} of user ${user}`, about: { client_id: client, user_name: user } });
    choices.push({ text: `all clients of user ${user}`, about: { user_name: user } });
  }
  if (peer !== undefined) {
    const address = peer.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
    choices.push({ text: `all clients from address ${address}`, about: { address } });
  }
  return choices;
}

async function ban(button) {
  const dialog = at("ban");
  const choices = subjects(button.dataset);
  at("ban-whom").replaceChildren(...choices.map(({ text }, index) => {
    const radio = make("input", { type: "radio", name: "whom", value: index, ...(index === 0 ? { checked: "" } : {}) });
    return make("label", {}, radio, ` ${text}`);
  }));
  at("ban-reason").value = "";
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  if (dialog.returnValue !== "yes") return;
  const { text, about } = choices[Number(dialog.querySelector("input[name=whom]:checked").value)];
  const seconds = at("ban-seconds").value;
  await act(`banned ${text}`, () => post("/v1/bans", { ...about, reason: at("ban-reason").value, ...(seconds ? { seconds: Number(seconds) } : {}) }));
  showBans();
  showClients();
}

let banTimer = null;

async function showBans() {
  clearTimeout(banTimer);
  try {
    const bans = await ask("/v1/bans");
    at("ban-count").textContent = bans.length ? `${count(bans.length)} in force on all nodes.` : "Nobody is banned.";
    refresh(at("ban-rows"), bans.slice(0, CLIENTS).map(banRow));
  } catch (error) {
    at("ban-count").textContent = error.message;
  }
  banTimer = setTimeout(showBans, 5000);
}

function banRow(it) {
  const fields = [["client_id", "client"], ["user_name", "user"], ["anonymous", "no user"], ["topic_prefix", "topic prefix"], ["address", "address"]];
  const named = fields.filter(([field]) => it[field] !== null && it[field] !== false);
  const who = named.map(([field, word]) => (it[field] === true ? word : `${word} ${it[field] || "(none)"}`)).join(", ");
  const time = (ms) => new Date(ms).toLocaleString();
  const action = make("td", { class: "actions" });
  if (role === "admin") {
    const query = new URLSearchParams(named.map(([field]) => [field, it[field]]));
    action.append(make("button", { type: "button", "data-query": query, "data-who": who, "aria-label": `Lift the ban of ${who}` }, "Lift…"));
  }
  return make("tr", { "data-key": who }, make("td", {}, who), cell("Reason", it.reason, "long"), cell("By", it.by ?? ""), cell("Since", time(it.since_ms)), cell("Until", it.until_ms === null ? "it is lifted" : time(it.until_ms)), action);
}

async function lift({ dataset: { query, who } }) {
  if (!(await confirmed(`Lift the ban of ${who}?`, "It may connect to all nodes again.", "Lift"))) return;
  await act(`lifted the ban of ${who}`, () => ask(`/v1/bans?${query}`, { method: "DELETE" }));
  showBans();
}

async function drain() {
  const others = last.nodes.filter((node) => node.reachable && !node.is_self);
  const isLast = others.every((node) => node.state?.draining);
  const warning = isLast ? " It is the last node that serves: afterwards no client is accepted anywhere." : "";
  if (!(await confirmed(`Drain ${last.name}?`, `It refuses new clients, hands its sessions to the nodes with their backups and disconnects its clients.${warning}`, "Drain"))) return;
  await act("draining this node", async () => {
    happened("draining this node");
    for (let wasDraining = false; ;) {
      // Undone meanwhile, here or elsewhere.
      if (wasDraining && !last.draining) throw new Error("the node was told to accept clients again");
      wasDraining ||= last.draining;
      const left = await post(isLast ? "/v1/drain?force=true" : "/v1/drain", {});
      if (left.connections + left.sessions === 0) return;
      if (left.connections <= left.sessions && !last.nodes.some((node) => node.reachable && !node.is_self)) throw new Error(`no other node is there for ${left.sessions} sessions`);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }, "drained: this node can be stopped");
}

async function undrain() {
  if (!(await confirmed(`Let ${last.name} accept clients again?`, "Sessions that it handed over stay where they are until their clients connect to it.", "Accept clients"))) return;
  await act("this node accepts clients again", () => ask("/v1/drain", { method: "DELETE" }));
}

// --- The subscriber: as much of an MQTT 5.0 client as receives messages of QoS 0

const KEPT = 200; // messages shown; the oldest go
const SHOWN = 2000; // characters of a payload
const PACKET_BYTES = 65536; // Maximum Packet Size: the node drops what is larger
const KEEP_ALIVE_S = 30;
const REASONS = {
  0x86: "bad user name or password", 0x87: "not authorized", 0x88: "the server is unavailable", 0x89: "the server is busy", 0x8a: "banned",
  0x8b: "the server is shutting down", 0x8d: "keep alive timeout", 0x8e: "session taken over", 0x8f: "the topic filter is not valid", 0x96: "message rate too high",
  0x97: "quota exceeded", 0x98: "administrative action", 0x9c: "use another server", 0x9d: "server moved", 0x9e: "shared subscriptions are not supported",
};
let subscription = null;

const utf8 = new TextEncoder();
const strict = new TextDecoder("utf-8", { fatal: true });
const lengthy = (data) => [data.length >> 8, data.length & 255, ...data];
const reason = (code) => REASONS[code] || `reason code 0x${code.toString(16).padStart(2, "0")}`;

function packet(first, body) {
  const head = [first];
  let left = body.length;
  do {
    head.push((left & 127) | (left > 127 ? 128 : 0));
    left >>= 7;
  } while (left > 0);
  return new Uint8Array([...head, ...body]);
}

function connectPacket(user, password) {
  const flags = 2 | (user ? 128 : 0) | (password ? 64 : 0); // Clean Start
  const largest = [0x27, (PACKET_BYTES >> 24) & 255, (PACKET_BYTES >> 16) & 255, (PACKET_BYTES >> 8) & 255, PACKET_BYTES & 255];
  const credentials = [user, password].filter((it) => it).flatMap((it) => lengthy(utf8.encode(it)));
  // The empty client identifier asks the node for one.
  return packet(0x10, [...lengthy(utf8.encode("MQTT")), 5, flags, 0, KEEP_ALIVE_S, largest.length, ...largest, 0, 0, ...credentials]);
}

const subscribePacket = (filter) => packet(0x82, [0, 1, 0, ...lengthy(utf8.encode(filter)), 0]);

// A variable byte integer: its value and where it ends; null: it is not whole.
function variable(data, from) {
  let value = 0;
  for (let index = 0; index < 4; index += 1) {
    if (from + index >= data.length) return null;
    const byte = data[from + index];
    value += (byte & 127) * 128 ** index;
    if (byte < 128) return [value, from + index + 1];
  }
  throw new Error("the node sent what is not MQTT");
}

class Subscription {
  constructor(url, filter, user, password) {
    this.filter = filter;
    this.rest = new Uint8Array(0);
    this.pending = []; // not shown yet
    this.received = 0;
    this.ended = null;
    this.socket = new WebSocket(url, "mqtt");
    this.socket.binaryType = "arraybuffer";
    this.socket.addEventListener("open", () => this.socket.send(connectPacket(user, password)));
    this.socket.addEventListener("message", (event) => this.read(new Uint8Array(event.data)));
    this.socket.addEventListener("close", () => this.end(`cannot stay connected to ${url}`));
    this.ping = setInterval(() => this.socket.readyState === WebSocket.OPEN && this.socket.send(packet(0xc0, [])), KEEP_ALIVE_S * 500);
    this.painter = setInterval(() => this.paint(), 250);
    say("connecting");
  }

  read(data) {
    if (this.ended !== null) return;
    const all = new Uint8Array(this.rest.length + data.length);
    all.set(this.rest);
    all.set(data, this.rest.length);
    let from = 0;
    try {
      for (;;) {
        const head = variable(all, from + 1);
        if (!head) break;
        const [length, start] = head;
        if (length > PACKET_BYTES) throw new Error("the node sent a packet that is too large");
        if (start + length > all.length) break;
        this.handle(all[from], all.subarray(start, start + length));
        from = start + length;
      }
    } catch (error) {
      this.end(error.message);
    }
    this.rest = all.slice(from);
  }

  handle(first, body) {
    const kind = first >> 4;
    if (kind === 2) {
      if (body[1] !== 0) return this.end(`refused: ${reason(body[1])}`);
      return this.socket.send(subscribePacket(this.filter));
    }
    if (kind === 9) {
      const code = body[body.length - 1];
      return code >= 0x80 ? this.end(`refused: ${reason(code)}`) : say(`subscribed to ${this.filter}; nothing yet`);
    }
    if (kind === 14) return this.end(`the node ended the connection: ${reason(body[0] ?? 0)}`);
    if (kind === 3) this.handlePublish(first, body);
  }

  handlePublish(first, body) {
    const topicEnd = 2 + body[0] * 256 + body[1];
    const [length, start] = variable(body, topicEnd);
    this.received += 1;
    this.pending.push({ time: new Date(), topic: strict.decode(body.subarray(2, topicEnd)), retained: (first & 1) === 1, payload: body.slice(start + length) });
    if (this.pending.length > KEPT) this.pending.shift();
  }

  // A few times a second, however many messages come.
  paint() {
    if (!this.pending.length) return;
    const list = at("messages");
    list.prepend(...this.pending.reverse().map(messageLine));
    while (list.children.length > KEPT) list.lastChild.remove();
    this.pending = [];
    if (this.ended === null) say(`subscribed to ${this.filter}: ${count(this.received)} received, the last ${KEPT} are kept`);
  }

  end(why) {
    if (this.ended !== null) return;
    this.paint();
    this.ended = why;
    clearInterval(this.ping);
    clearInterval(this.painter);
    // The node closes when it has read the DISCONNECT.
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(packet(0xe0, []));
    setTimeout(() => this.socket.close(), 1000);
    say(why, why === "stopped" ? "" : "bad");
    at("subscriber-start").disabled = false;
    at("subscriber-stop").disabled = true;
  }
}

function say(text, kind) {
  at("subscriber-state").textContent = text;
  at("subscriber-state").className = kind ? `note ${kind}` : "note";
}

function messageLine({ time, topic, retained, payload }) {
  const line = make("li", {}, make("time", {}, time.toLocaleTimeString()), " ", make("b", {}, topic), ` ${bytes(payload.length)}${retained ? ", retained" : ""}`);
  if (payload.length) line.append(make("pre", {}, textOf(payload)));
  return line;
}

function textOf(payload) {
  let text;
  try {
    text = strict.decode(payload);
  } catch {
    const digits = [...payload.subarray(0, 64)].map((byte) => byte.toString(16).padStart(2, "0"));
    return `no text: ${digits.join(" ")}${payload.length > 64 ? " …" : ""}`;
  }
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text;
}

// Where this page can subscribe: a page that came over TLS may use listeners with TLS only.
function offerListeners({ websockets }) {
  const isSecure = location.protocol === "https:";
  const usable = websockets.filter((it) => it.secure || !isSecure);
  const options = usable.map((it) => {
    const url = `${it.secure ? "wss" : "ws"}://${it.host ?? location.hostname}:${it.port}${it.path}`;
    return make("option", { value: url }, it.topic_prefix ? `${url}, topics below ${it.topic_prefix}` : url);
  });
  refresh(at("subscriber-listener"), options);
  at("subscriber").hidden = !options.length;
  at("no-listener").hidden = options.length > 0;
  if (options.length) return;
  at("no-listener").textContent = websockets.length
    ? "This page came over TLS, and this node has no listener for WebSocket with TLS (wss://), so that the page cannot subscribe."
    : "This node has no listener for WebSocket (ws:// or wss://), so that this page cannot subscribe. `thicket sub` subscribes over TCP.";
}

function subscribe(event) {
  event.preventDefault();
  if (subscription) subscription.end("stopped");
  at("subscriber-start").disabled = true;
  at("subscriber-stop").disabled = false;
  try {
    const [filter, url, user, password] = ["filter", "listener", "user", "password"].map((name) => at(`subscriber-${name}`).value);
    subscription = new Subscription(url, filter, user, password);
  } catch (error) {
    say(error.message, "bad");
    at("subscriber-start").disabled = false;
    at("subscriber-stop").disabled = true;
  }
}

// --- Start

const SILENCE_MS = 5000; // without an entry, of which one comes every second
let silence = null, isLost = false;

function watch() {
  const source = new EventSource("/v1/watch");
  source.addEventListener("message", (event) => {
    found();
    show(JSON.parse(event.data));
  });
  source.addEventListener("error", () => {
    lost();
    // A browser gives up after an answer that is no stream, such as 503.
    if (source.readyState === EventSource.CLOSED) setTimeout(watch, 3000);
  });
}

function found() {
  clearTimeout(silence);
  silence = setTimeout(lost, SILENCE_MS);
  pill("live", "live", "good");
  if (!isLost) return;
  isLost = false;
  document.body.classList.remove("old");
  at("old").hidden = true;
  happened("this node answers again", "good");
}

// The node does not answer: what is shown is as old as its last entry.
function lost() {
  pill("live", "no answer: trying again", "bad");
  if (isLost || !last) return;
  isLost = true;
  pill("ready", "not connected", "bad");
  document.title = `✗ ${last.name} – Thicket`;
  document.body.classList.add("old");
  at("old").textContent = `Not connected to ${last.name}. Everything below is old: it is from ${lastTime.toLocaleTimeString()}.`;
  at("old").hidden = false;
  happened("this node does not answer", "bad");
}

async function start() {
  at("search-form").addEventListener("submit", (event) => event.preventDefault());
  at("search").addEventListener("input", () => { clearTimeout(clientTimer); clientTimer = setTimeout(showClients, 150); });
  at("order").addEventListener("change", showClients);
  at("client-rows").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) (button.dataset.act === "ban" ? ban : kick)(button);
  });
  at("ban-rows").addEventListener("click", (event) => { const button = event.target.closest("button"); if (button) lift(button); });
  at("subscriber").addEventListener("submit", subscribe);
  at("subscriber-stop").addEventListener("click", () => subscription && subscription.end("stopped"));
  at("subscriber-clear").addEventListener("click", () => at("messages").replaceChildren());
  for (const name of ["pointerover", "pointerout", "focusin", "focusout"]) at("picture").addEventListener(name, showPointed);
  at("picture").addEventListener("keydown", walkPicture);
  at("drain").addEventListener("click", drain);
  at("undrain").addEventListener("click", undrain);
  watch();
  try {
    role = (await ask("/v1/whoami")).role;
    at("role").textContent = role === "admin" ? "admin" : role === "viewer" ? "viewer: read-only" : "read-only: the HTTP API has no users";
  } catch (error) {
    complain(error.message);
  }
  showClients();
  showBans();
  showMemory();
}

start();
