/**
 * What can go wrong.
 *
 * ```text
 * ThicketError
 * ├── ConnectError        no broker took the client
 * ├── Refused             the broker refused what was asked for: reasonCode
 * ├── OutcomeUnknown      a message of QoS 2 was under way when the broker lost the session
 * └── ClosedError         the client has ended
 *     └── TakenOver       because another client uses its identifier
 * ```
 *
 * Wrong arguments are RangeError.
 */

/** What can go wrong, besides wrong arguments. */
export class ThicketError extends Error {
  override readonly name: string = "ThicketError";
}

/** No broker of those named took the first connection in time. */
export class ConnectError extends ThicketError {
  override readonly name: string = "ConnectError";
}

/** The broker refused what was asked for. The client serves on. */
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

/** The message may have arrived, once, or not. It is not sent again. */
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
