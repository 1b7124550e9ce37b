/** An MQTT client whose sessions are where its topics are. */

import { Client } from "./client.js";

export { Client, type Sent } from "./client.js";
export type { Tls } from "./connection.js";
export { ClosedError, ConnectError, OutcomeUnknown, Refused, TakenOver, ThicketError } from "./errors.js";
export { Message, type MessageOptions, type Qos } from "./message.js";
export type { Acknowledge, Options, Placement } from "./options.js";
export type { RetainHandling, SubscriptionOptions } from "./subscription.js";

/** Connects: {@link Client.connect}. */
export const connect = Client.connect;
