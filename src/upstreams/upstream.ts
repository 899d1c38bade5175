import type { ServerConfig } from '../config/schema/schema.ts'
import type { Signal } from '../mesh/cancel.ts'
import type { CrashLoop } from '../mesh/wire-shape.ts'
import type { Call, Caller, Message, Outcome } from '../mesh/call.ts'
import type { Millis } from '../mesh/clock.ts'
import type { GatewayError } from '../mesh/errors.ts'
import type { Era } from '../protocol/versions.ts'

/**
 * One endpoint of a server, whatever it speaks. Every kind of upstream keeps this contract, and one
 * test suite is run against all of them.
 */
export interface Upstream {
  /**
   * Begins an upstream session on behalf of a caller: handshake included.
   * Rejects with a `GatewayError` (as a plain value) when that fails; the caller may try again. `limits` are for processes;
   * unless given, those of the config that it was made with.
   */
  open(caller: Caller, signal: Signal, limits?: StartLimits): Promise<UpstreamSession>
  /** Goes by another entry from now on, one with the same connections; see `connectionOf`. */
  follow?(config: ServerConfig): void
  /** Ends all upstream sessions and whatever stands behind them. Resolves when nothing is left. */
  close(): Promise<void>
  /**
   * The start of the process that a caller waits for; undefined when there is none. Whoever has this starts processes, and
   * bounds by itself how long `open` may take.
   */
  starting?(caller: Caller): Starting | undefined
  /** How many processes stand behind it, with those that are being started; undefined when there never are any. */
  processes?(): number
  /** Signals the processes behind it; false when there are none, undefined when there never are. */
  signal?(name: NodeJS.Signals): boolean
  /** Ends the processes behind it, and each that is started while the loop lasts. Said again, it changes nothing. */
  crash?(loop: CrashLoop): void
  /**
   * Has bytes read as if its processes had written them, between two lines of their own; resolves once they are read, or
   * `over` has aborted, from when on no more of them is. Undefined when there is no process.
   */
  write?(bytes: Buffer, over: Signal): Promise<void> | undefined
  /**
   * Whether the endpoint takes requests, whatever it answers to one that means nothing; undefined when there is nothing
   * to be asked. Leaves nothing behind at the server. Never rejects.
   */
  probe?(signal: Signal): Promise<boolean>
  /** The families of protocol versions that the endpoint speaks, as far as anybody has found out. */
  eras?(): Eras
  /** The transport behind a URL, where the config does not name the transport; undefined while nobody knows. */
  transport?(): KnownTransport | undefined
}

/** The transport that was found at a URL, and since when it is known. */
export interface KnownTransport {
  readonly transport: 'streamable-http' | 'sse'
  readonly decidedBy: 'probe'
  /** Milliseconds since the Unix epoch. */
  readonly at: number
}

/** How long a process may take to come up, in milliseconds. */
export interface StartLimits {
  /** From its start until it writes something to its standard output. */
  readonly startMs: Millis
  /** From then on, until its handshake is over. */
  readonly handshakeMs: Millis
}

/** The start of a process that is under way. */
export interface Starting {
  /** For how long, in milliseconds. */
  readonly forMs: Millis
  /** The message for somebody who waits for the start. */
  readonly told: string
  /** Why the start before it failed; undefined for the first one, and after a process that came up. */
  readonly failure: GatewayError | undefined
}

/** Whether a server speaks an era, how that was decided, and since when it is so. */
export interface KnownEra {
  readonly speaks: boolean
  /** By the config, by asking, by a refusal of the version, or by the lack of an answer. */
  readonly decidedBy: 'config' | 'probe' | 'version_error' | 'silence'
  /** Milliseconds since the Unix epoch. */
  readonly at: number
}

/** The facts about each era; undefined for an era that nobody has asked for. */
export type Eras = { readonly [era in Era]?: KnownEra }

/** One initialised upstream session with an endpoint. */
export interface UpstreamSession {
  /** The `initialize` result: protocol version, capabilities, serverInfo, instructions. */
  readonly initializeResult: Message
  /** Whether the endpoint may remember something of this upstream session, so that no other can go on with it. */
  readonly keepsState: boolean
  /**
   * Whether its caller has asked the server for something that the next session has to be told, and that a caller which only listens
   * would miss; absent where the session itself begins anew.
   */
  readonly isAskedToRemember?: boolean
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
  /** Asks at once for the stream that `listen` waits to open, or was refused; with `anew` also for one that is open. */
  relisten?(anew: boolean): void
  /** Has the server take the session for unknown, as after a restart; false when there is none. */
  loseSession?(): boolean
  /** Ends the upstream session. Idempotent; never rejects. */
  close(): Promise<void>
  /** Aborted once the upstream session is over, by whatever cause: its `reason` is a `GatewayError`. */
  readonly ended: Signal
}
