import type { ServerConfig } from '../config/schema/schema.ts'
import type { Signal } from '../mesh/cancel.ts'
import type { CrashLoop } from '../mesh/wire-shape.ts'
import type { Call, Caller, Message, Outcome } from '../mesh/call.ts'
import type { Millis } from '../mesh/clock.ts'
import type { GatewayError } from '../mesh/errors.ts'
import type { Era } from '../protocol/versions.ts'

/** An endpoint of a server, in any protocol. All kinds of upstream fulfil this contract; one test suite checks all. */
export interface Upstream {
  /**
   * Opens an upstream session for a caller, handshake included. Rejects with a `GatewayError` (as a plain value); the
   * caller may retry. `limits` are for processes; default: the config's.
   */
  open(caller: Caller, signal: Signal, limits?: StartLimits): Promise<UpstreamSession>
  /** Applies a changed config entry that needs no new connections; see `connectionOf`. */
  follow?(config: ServerConfig): void
  /** Ends all upstream sessions and their resources. Resolves when nothing is left. */
  close(): Promise<void>
  /**
   * Returns the process start for which a caller waits, if any. Only processes have this method: their `open` has its
   * own time limits.
   */
  starting?(caller: Caller): Starting | undefined
  /** Number of processes, starting processes included; absent for endpoints without processes. */
  processes?(): number
  /** Signals all processes; returns false if no process runs. Absent for endpoints without processes. */
  signal?(name: NodeJS.Signals): boolean
  /** Ends all processes, and each new process while the loop lasts. Repeating the call changes nothing. */
  crash?(loop: CrashLoop): void
  /**
   * Injects bytes as if the processes had written them between two lines; resolves once all bytes are read. When `over`
   * aborts, drops the unread bytes and resolves. Undefined without a process.
   */
  write?(bytes: Buffer, over: Signal): Promise<void> | undefined
  /** Resolves to whether the endpoint takes requests; absent if it cannot be asked. Opens no session. Never rejects. */
  probe?(signal: Signal): Promise<boolean>
  /** The protocol eras of the endpoint, as far as known. */
  eras?(): Eras
  /** The transport behind a URL without a configured transport; undefined while unknown. */
  transport?(): KnownTransport | undefined
}

export interface KnownTransport {
  readonly transport: 'streamable-http' | 'sse'
  readonly decidedBy: 'probe'
  /** Milliseconds since the Unix epoch. */
  readonly at: number
}

/** Limits of a process start, in milliseconds. */
export interface StartLimits {
  /** From the start to the first standard output. */
  readonly startMs: Millis
  /** From the first standard output to the end of the handshake. */
  readonly handshakeMs: Millis
}

export interface Starting {
  /** Duration so far, in milliseconds. */
  readonly forMs: Millis
  /** The message for a waiting caller. */
  readonly told: string
  /** Why the previous start failed; undefined for the first start, and after a success. */
  readonly failure: GatewayError | undefined
}

/** Whether a server speaks an era, how this was decided, and since when. */
export interface KnownEra {
  readonly speaks: boolean
  /** By the config, by asking, by a refused version, or by silence. */
  readonly decidedBy: 'config' | 'probe' | 'version_error' | 'silence'
  /** Milliseconds since the Unix epoch. */
  readonly at: number
}

/** The facts about each era; undefined for an era nobody asked about. */
export type Eras = { readonly [era in Era]?: KnownEra }

/** An initialised upstream session with an endpoint. */
export interface UpstreamSession {
  /** The `initialize` result: protocol version, capabilities, serverInfo, instructions. */
  readonly initializeResult: Message
  /** Whether the endpoint may keep state for this upstream session, so no other session can replace it. */
  readonly keepsState: boolean
  /**
   * Whether the server keeps subscriptions or a log level for the caller. Then a new session must restore them, or a
   * listening caller would miss messages. Absent if the session reopens itself.
   */
  readonly isAskedToRemember?: boolean
  /** Sends a request and follows its stream to the answer. Never rejects. */
  exchange(call: Call): Promise<Outcome>
  /** Sends a notification, or the answer to a server's request. Rejects with a `GatewayError`. */
  post(text: string): Promise<void>
  /**
   * Requests the server's messages outside of calls, for `caller.receive`. Holds a separate stream open if the
   * transport has such streams. Later calls wait until no message can be lost, as far as possible. Idempotent.
   */
  listen(): void
  /** Requests the stream of `listen` at once, unless it is open or requested already; with `anew`, in any case. */
  relisten?(anew: boolean): void
  /** Makes the server treat the session as unknown, as after a restart; false without a session. */
  loseSession?(): boolean
  /** Ends the upstream session. Idempotent; never rejects. */
  close(): Promise<void>
  /** Aborted once the upstream session is over, for any cause: its `reason` is a `GatewayError`. */
  readonly ended: Signal
}
