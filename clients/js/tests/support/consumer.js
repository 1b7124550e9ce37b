/** A process that handles messages and can be killed: node consumer.js URL QOS ACKNOWLEDGE. It prints each message when it was handled. */

import { writeSync } from "node:fs";

import { connect } from "thicket-mqtt";

const [, , url = "", qos, acknowledge] = process.argv;
const client = await connect(url, {
  clientId: "consumer",
  resume: true,
  subscribe: { work: /** @type {import("thicket-mqtt").Qos} */ (Number(qos)) },
  acknowledge: /** @type {import("thicket-mqtt").Acknowledge} */ (acknowledge),
});
writeSync(1, "ready\n");
for await (const { text } of client) {
  // What is handled takes a moment.
  await new Promise((resolve) => setTimeout(resolve, 2));
  writeSync(1, `${text}\n`);
}
