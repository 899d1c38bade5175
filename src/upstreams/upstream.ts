import type { Signal } from '../mesh/cancel.ts'
import type { Call, Caller, Message, Outcome } from '../mesh/call.ts'

/**
 * One endpoint of a server, whatever it speaks. Every kind of upstream keeps this contract, and one
 * test suite is run against all of them.
 */
export interface Upstream {
  /**
   * Begins a conversation on behalf of a caller: handshake included.
   * Rejects with a `GatewayError` (as a plain value) when that fails; the caller may try again.
   */
  open(caller: Caller, signal: Signal): Promise<Link>
  /** Ends all conversations and whatever stands behind them. Resolves when nothing is left. */
  close(): Promise<void>
  /** How many processes stand behind it, with those that are being started; undefined when there never are any. */
  processes?(): number
  /** Signals the processes behind it; false when there are none, undefined when there never are. */
  signal?(name: NodeJS.Signals): boolean
  /**
   * Whether the endpoint takes requests, whatever it answers to one that means nothing; undefined when there is nothing
   * to be asked. Leaves nothing behind at the server. Never rejects.
   */
  probe?(signal: Signal): Promise<boolean>
  /** Which families of protocol versions the endpoint speaks, as far as anybody has found out. */
  eras?(): Eras
}

/** A family of protocol versions: with sessions, or without. */
export type Era = 'legacy' | 'modern'

/** Whether a server speaks an era, how that was decided, and since when it is so. */
export interface EraVerdict {
  readonly speaks: boolean
  /** By the config, by asking, by a refusal of the version, or by the lack of an answer. */
  readonly decidedBy: 'config' | 'probe' | 'version_error' | 'silence'
  /** Milliseconds since the Unix epoch. */
  readonly at: number
}

/** The verdict of each era; none of an era that nobody has asked for. */
export type Eras = { readonly [era in Era]?: EraVerdict }

/** One initialised conversation with an endpoint. */
export interface Link {
  /** The `initialize` result: protocol version, capabilities, serverInfo, instructions. */
  readonly greeting: Message
  /** Whether the endpoint may remember something of this conversation, so that no other can go on with it. */
  readonly keepsState: boolean
  /** Sends one request and follows its stream up to the answer. Never rejects. */
  exchange(call: Call): Promise<Outcome>
  /** Sends a notification, or the answer to a request of the server. Rejects with a `GatewayError`. */
  post(text: string): Promise<void>
  /**
   * Asks for what the server sends outside of calls; it arrives at `caller.receive`. Where the
   * transport has a stream of its own for it, this holds that stream open. Calls that follow wait until
   * nothing more is lost, as far as that goes. Idempotent.
   */
  listen(): void
  /** Has the server take the session for unknown, as after a restart; false when there is none. */
  loseSession?(): boolean
  /** Ends the conversation. Idempotent; never rejects. */
  close(): Promise<void>
  /** Aborted once the conversation is over, by whatever cause: its `reason` is a `GatewayError`. */
  readonly ended: AbortSignal
}
