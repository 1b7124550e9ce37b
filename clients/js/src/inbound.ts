/**
 * Received messages of QoS 1 and 2 of one session, and the acknowledgements that are owed for them.
 *
 * A message is owed its acknowledgement, PUBACK or PUBREC, until the application gives it. QoS 2, one packet identifier:
 *
 * | state | PUBLISH | PUBREL | acknowledged by the application |
 * | --- | --- | --- | --- |
 * | free | delivered: owed | PUBCOMP | |
 * | owed | nothing | PUBCOMP | PUBREC: held |
 * | held | PUBREC again | PUBCOMP: free | |
 *
 * PUBREC is not sent at receipt: the broker may forget a message whose PUBREC it has, and a client whose process ends has
 * forgotten it too. While the process lives, nothing of QoS 2 is delivered twice: a message that is owed or held is recognised on
 * the next connection. At QoS 1 the broker sends what was not acknowledged again on the next connection. It is delivered again,
 * and an acknowledgement of the earlier delivery has no effect.
 */

/** What to do about a PUBLISH that is not to be delivered. */
export type Reception =
  /** Answer without a second delivery [MQTT-4.3.3-10]. */
  | "acknowledgeAgain"
  /** The application has it, and has not acknowledged it yet. */
  | "ignore"
  /** The broker sent more than our Receive Maximum [MQTT-3.3.4-9]. */
  | "exceeded";

/** What is owed for one delivery. */
export class Receipt {
  readonly qos: 1 | 2;
  readonly packetId: number;
  readonly #onAcknowledged: (receipt: Receipt) => void;
  isAcknowledged = false;
  /** The broker sends it again, on another connection: this delivery can be dropped if the application has not taken it. */
  isSuperseded = false;

  constructor(qos: 1 | 2, packetId: number, onAcknowledged: (receipt: Receipt) => void) {
    this.qos = qos;
    this.packetId = packetId;
    this.#onAcknowledged = onAcknowledged;
  }

  /** Only the first call has an effect. */
  acknowledge(): void {
    if (!this.isAcknowledged) {
      this.isAcknowledged = true;
      this.#onAcknowledged(this);
    }
  }
}

/** See the module. */
export class Inbound {
  readonly #maximum: number;
  readonly #onAcknowledged: (receipt: Receipt) => void;
  /** Unacknowledged deliveries in order, by QoS and then by packet identifier. */
  readonly #owed = { 1: new Map<number, Receipt>(), 2: new Map<number, Receipt>() };
  /** QoS 2: PUBREC was sent, PUBREL has not arrived. */
  readonly #held = new Set<number>();
  /** Of QoS 2 since an earlier connection, and not sent again on this one: Receive Maximum counts for each connection. */
  readonly #earlier = new Set<number>();
  /** Of QoS 1, unacknowledged on connections that have ended. */
  #interrupted: Receipt[] = [];

  /** @param maximum - our Receive Maximum, undefined before 5.0 */
  constructor(maximum: number | undefined, onAcknowledged: (receipt: Receipt) => void) {
    this.#maximum = maximum ?? Infinity;
    this.#onAcknowledged = onAcknowledged;
  }

  /** Whether the application has acknowledged everything. */
  get isSettled(): boolean {
    return this.#owed[1].size + this.#owed[2].size === 0;
  }

  /** A PUBLISH has arrived. A receipt: it is to be delivered. */
  onPublish(qos: 1 | 2, packetId: number): Receipt | Reception {
    const isHeld = qos === 2 && this.#held.has(packetId);
    if (isHeld || this.#owed[qos].has(packetId)) {
      this.#earlier.delete(packetId);
      return isHeld ? "acknowledgeAgain" : "ignore";
    }
    const all = this.#owed[1].size + this.#owed[2].size + this.#held.size;
    if (all - this.#earlier.size >= this.#maximum) {
      return "exceeded";
    }
    const receipt = new Receipt(qos, packetId, this.#onAcknowledged);
    this.#owed[qos].set(packetId, receipt);
    return receipt;
  }

  onPubrel(packetId: number): void {
    this.#held.delete(packetId);
    this.#earlier.delete(packetId);
  }

  /** The packet identifiers to acknowledge now, in the order of their messages [MQTT-4.6.0-2] [MQTT-4.6.0-3]. */
  due(qos: 1 | 2): number[] {
    const owed = this.#owed[qos];
    const due: number[] = [];
    for (const [packetId, { isAcknowledged }] of owed) {
      if (!isAcknowledged) {
        break;
      }
      owed.delete(packetId);
      due.push(packetId);
      if (qos === 2) {
        this.#held.add(packetId);
      }
    }
    return due;
  }

  /** The connection has ended. */
  onClosed(): void {
    this.#interrupted.push(...this.#owed[1].values());
    this.#owed[1].clear();
    this.#earlier.clear();
    for (const packetId of [...this.#held, ...this.#owed[2].keys()]) {
      this.#earlier.add(packetId);
    }
  }

  /** A broker has accepted the session. If it does not have it, everything that it sends is new. */
  onConnected(sessionPresent: boolean): void {
    if (sessionPresent) {
      this.#interrupted.forEach((receipt) => (receipt.isSuperseded = true));
    } else {
      this.#owed[2].clear();
      this.#held.clear();
      this.#earlier.clear();
    }
    this.#interrupted = [];
  }
}
