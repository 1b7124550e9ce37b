/**
 * Errors.
 *
 * ```text
 * ThicketError
 * ├── ConnectError        no broker accepted the client
 * ├── Refused             the broker refused a request: reasonCode
 * ├── OutcomeUnknown      a message of QoS 2 was in flight when the broker lost the session
 * └── ClosedError         the client has ended
 *     └── TakenOver       because another client uses its identifier
 * ```
 *
 * Wrong arguments are RangeError.
 */

/** Base of all errors except wrong arguments. */
export class ThicketError extends Error {
  override readonly name: string = "ThicketError";
}

/** None of the brokers accepted the first connection in time. */
export class ConnectError extends ThicketError {
  override readonly name: string = "ConnectError";
}

/** The broker refused a request. The client continues. */
export class Refused extends ThicketError {
  override readonly name: string = "Refused";

  /** @param reasonCode - as in the packet (5.0, 2.4) */
  constructor(
    readonly reasonCode: number,
    reason: string,
  ) {
    super(`refused by the broker: ${reason} (0x${reasonCode.toString(16).padStart(2, "0")})`);
  }
}

/** The message may or may not have arrived, at most once. It is not sent again. */
export class OutcomeUnknown extends ThicketError {
  override readonly name: string = "OutcomeUnknown";
}

/** The client has ended. */
export class ClosedError extends ThicketError {
  override readonly name: string = "ClosedError";
}

/** Another client uses the same client identifier. This one has ended. */
export class TakenOver extends ClosedError {
  override readonly name: string = "TakenOver";
}
