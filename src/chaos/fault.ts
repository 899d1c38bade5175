import { isIP } from 'node:net'
import type { Call, Caller, Layer, Message, Outcome } from '../mesh/call.ts'
import type { Signal } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import type { ConnectFailure, CrashLoop } from '../mesh/wire-shape.ts'
import type { GatewayError } from '../mesh/errors.ts'
import type { Schema } from '../mesh/policy.ts'

/**
 * The place of a fault: `upstream` is below all policies, to test the gateway; `client` is above all policies, to test
 * the agent.
 */
export type Side = 'upstream' | 'client'

/** A whole HTTP reply, as written by a server. */
export interface RawReply {
  readonly status: number
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

export const transports = ['stdio', 'http', 'sse'] as const
export type Transport = (typeof transports)[number]

export const eras = ['legacy', 'modern'] as const
export type Era = (typeof eras)[number]

/**
 * The facts about a server's address that decide how a connection can fail. With several addresses, a fact is true when
 * true for any of them.
 */
export interface ServerAddress {
  readonly isSecure: boolean
  /** True when the host is a name, which needs a DNS lookup. */
  readonly isNamed: boolean
}

/** Returns true when the host of a URL is a name, not an address. */
function isNamed(hostname: string): boolean {
  return isIP(hostname.replace(/^\[|\]$/g, '')) === 0
}

/** Returns the facts in a server's URLs that decide how connections to the server can fail. */
export function serverAddress(urls: readonly string[]): ServerAddress {
  const parsed = urls.map((url) => new URL(url))
  return {
    isSecure: parsed.some(({ protocol }) => protocol === 'https:'),
    isNamed: parsed.some(({ hostname }) => isNamed(hostname)),
  }
}

/** How to reach a server: some faults need certain kinds of servers. */
export interface ServerKind {
  readonly transport: Transport
  /** The protocol era of the server. Undefined before the first contact, and when the era depends on the caller. */
  readonly era: Era | undefined
  /**
   * Facts about the server's address. Undefined for a server that is a process, and when no particular server is meant.
   */
  readonly address?: ServerAddress | undefined
}

/** Actions of faults beyond the hit call. The gateway's usual recovery of a server undoes each action. */
export interface FaultEnvironment {
  /** Returns the kind of server that a call reaches. For a server with both eras, the era is the caller's. */
  kindOf(call: Call): ServerKind | undefined
  /** The JSON Schema of a tool's structured content, from its server's list; undefined for none. */
  outputSchemaOf(server: string, tool: string): unknown
  /** Sends a signal to the processes of a server. Returns false when the server has no process. */
  signal(server: string, signal: NodeJS.Signals): boolean
  /**
   * Ends the processes of a server, and each process started during the loop. Repeating the same loop changes nothing.
   */
  crash(server: string, loop: CrashLoop): void
  /**
   * Has the gateway read bytes as if the server's processes had written them to their standard output, between two of
   * their own lines. Resolves once the bytes are read, or when `over` aborts, which stops reading. Returns undefined
   * when the server has no process.
   */
  write(server: string, bytes: Buffer, over: Signal): Promise<void> | undefined
  /** Makes the server treat the caller's session as unknown. Returns false when the caller has no session. */
  loseSession(server: string, caller: Caller): boolean
  /** Delivers a message as if the server had sent it outside of any call. */
  tell(server: string, message: Message): void
  refresh(server: string): void
  /** Sends a tool call to another server, past all policies; undefined when there is no such server. */
  sendTo(call: Call, server: string): Promise<Outcome> | undefined
  /**
   * Counts an attempt in the call's record, although the attempt does not reach its server. `sent`: the attempt counts
   * as sent. Returns false when a real attempt would not count either, such as an attempt without a session.
   */
  beginAttempt(call: Call, sent: boolean): boolean
  /**
   * Makes the gateway suspect the server after an error made by a fault, as after the same error of the server itself.
   */
  suspect(call: Call, error: GatewayError): void
  /** Returns the error of an unreachable server, with the message of the server's transport. */
  unreachable(call: Call): GatewayError
  /**
   * Returns the error of a connection that fails before the call is sent; a slow failure ends with `timeouts.connect`.
   * Undefined where this failure cannot happen, such as when all certificates are trusted. Never rejects.
   */
  failToConnect(call: Call, failure: ConnectFailure): Promise<GatewayError> | undefined
  /** Returns the outcome that the transport would read from a reply. */
  read(call: Call, reply: RawReply): Outcome
}

/** One fault acting on one call. */
export interface Injection {
  readonly fault: string
  readonly side: Side
  readonly clock: Clock
  readonly faultEnvironment: FaultEnvironment
  /** Aborts when the fault ends or is disarmed, and on a kill: held calls then continue unharmed. */
  readonly released: Signal
  /** Returns a number in [0, 1) that depends only on the plan's seed, the fault, the call and `purpose`. */
  draw(purpose: string): number
  /**
   * Waits `ms` milliseconds, or until the fault is released or the call aborts. Resolves with the reason for the end;
   * never rejects. Counts as a delay of the call. During the wait the call counts as sent, unless `sent` is false.
   */
  pause(ms: Millis, call: Call, sent?: boolean): Promise<'over' | 'released' | 'aborted'>
  /** Returns `settled`. Counts the time until `settled` settles as a delay of the call by the fault. */
  delaying<Settled>(call: Call, settled: Promise<Settled>): Promise<Settled>
  /** Records that the bytes of the reply will reach the agent `ms` milliseconds later, after the end of the call. */
  delayed(ms: Millis): void
  /** Counts the injection against `maxConcurrent` until `until` settles, even when the call ends earlier. */
  keepsPlace(until: Promise<void>): void
  /**
   * Returns the outcome of a raw reply in place of the server's reply. On side client, the raw reply is written to the
   * agent.
   */
  reply(call: Call, raw: RawReply): Outcome
  /**
   * Returns the outcome of a broken connection between gateway and server, or (side client) between agent and gateway.
   */
  disconnect(call: Call, message: string): Outcome
  /**
   * Returns the outcome with another result. When the changed result reaches the agent unnoticed, the fate is
   * `escaped`.
   */
  change(outcome: Outcome, result: unknown): Outcome
  /** Journals the exact effect, such as a delay or a path. */
  note(facts: Readonly<Record<string, unknown>>): void
  /** Journals that the fault found nothing to change at this call. The fault then has to pass the call on unchanged. */
  notApplicable(why: string): void
  /**
   * Journals that the call, or the fault, was over before any effect. The fault then has to pass a reply on unchanged.
   */
  notReached(why: string): void
  /** Returns the fault's state under `key`, kept from call to call while armed; `create` makes a missing state. */
  memory<State extends object>(key: string, create: () => State): State
}

export const NO_REPLY = 'the call failed by itself: there is no reply'

export const ENDED = 'the fault had ended when the reply came'

/** The families of faults with their titles, in the order of docs/faults.md. */
export const families = {
  registry: 'Lists of servers',
  route: 'Routing of calls',
  request: 'Requests',
  connection: 'The connection',
  process: 'The process of a server',
  handshake: 'Handshakes and pings',
  http: 'HTTP',
  rpc: 'JSON-RPC',
  result: 'Results',
  stream: 'Streams',
  session: 'Sessions',
  auth: 'Authorization',
  limit: 'Limits',
  composite: 'Several calls together',
} as const

export type Family = keyof typeof families

/**
 * Fields that options of the command line can set, besides the common fields. `status` is an HTTP status, `fields` are
 * names of fields.
 */
export interface OptionValues {
  readonly delay: Millis
  readonly retryAfter: Millis
  readonly status: number
  readonly fields: readonly string[]
}

/** A fault's field set by an option of `breakwater chaos inject`. */
export interface OptionField<Value> {
  readonly sets: string
  /** Returns the value of the field for an option's value; without `as`, both values are the same. */
  readonly as?: (value: Value) => unknown
}

export type FaultOptions = { readonly [Name in keyof OptionValues]?: OptionField<OptionValues[Name]> }

/** Formats of other tools' plans that Breakwater can read. */
export type ForeignFormat = 'mcp-chaos' | 'chaos-monkey'

/**
 * The values a fault supports, and the reason why it refuses other values. `{}` in the reason is replaced by the
 * refused value.
 */
export interface Only<Value extends string> {
  readonly only: readonly Value[]
  readonly otherwise: string
}

/** A type of faults, with all that the other parts of the gateway need to know about it. */
export interface FaultType<Config> {
  /** Schema of the type's own fields, each with a description; without the common fields. */
  readonly schema: Schema<Config>
  /** The section of docs/faults.md that lists the type. */
  readonly family: Family
  /** The effect of the fault, in one line. */
  readonly about: string
  /** The purpose of the fault: one sentence. */
  readonly use: string
  /** The agent's view of the fault with the default policies. */
  readonly seen: string
  /**
   * The policies that contain the fault, by config name, and how they do. Without a policy, `how` names another
   * defence, or the reason why there is none.
   */
  readonly containedBy: { readonly policies: readonly string[]; readonly how: string }
  /** Methods the fault can hit; default `tools/call`. */
  readonly methods?: readonly string[]
  readonly sides: readonly Side[]
  /** Transports of servers the fault works with (side upstream); default: all. */
  readonly transports?: Only<Transport>
  /** Eras of servers the fault works with (side upstream); default: all. */
  readonly eras?: Only<Era>
  /** Returns the server that gets the hit calls in place of their own server; default: no server. */
  sendsTo?(config: Config): string | undefined
  /** Returns why the fault cannot work with such a server, besides `transports` and `eras`; undefined when it can. */
  refuses?(kind: ServerKind): string | undefined
  /**
   * True for types with which a hit call runs at most once, and no answer suggests to repeat a call that has run. The
   * fault answers in place of the server, or sends the call late. Other types may lose or change the answer of a call
   * that has run, or repeat the call.
   */
  readonly runsAsAsked?: true
  /**
   * True for types whose hit calls never reach the server. Without `allowWrites`, faults of these types also hit tools
   * that write, and tools missing from the list.
   */
  readonly withholds?: true
  /**
   * Returns true when the fault has to hit a call that no draw chose, because of an earlier hit call; default: false.
   */
  catches?(call: Call, injections: Pick<Injection, 'memory'>): boolean
  /** Names of this type in plans of other tools; default: none. */
  readonly aliases?: Readonly<Partial<Record<ForeignFormat, readonly string[]>>>
  /** Options of the command line that set a field of another name; an option with a field's name sets this field. */
  readonly options?: FaultOptions
  /** An entry of a plan without its `type`, as in `config/chaos.yaml`. */
  readonly example: Readonly<Record<string, unknown>> & { readonly name: string }
  /**
   * Returns the layer that applies the fault. The layer calls `next` to send the call on, and never throws because of
   * the server.
   */
  layer(config: Config, injection: Injection): Layer
}

/** Returns why a fault of this type cannot work with such a server; undefined when it can. */
export function refusalOf(type: FaultType<unknown>, kind: ServerKind): string | undefined {
  const { transport, era } = kind
  const without = <Value extends string>(limit: Only<Value> | undefined, value: Value | undefined) =>
    limit === undefined || value === undefined || limit.only.includes(value)
      ? undefined
      : limit.otherwise.replaceAll('{}', value)
  return without(type.transports, transport) ?? without(type.eras, era) ?? type.refuses?.(kind)
}

/** Returns the `result` of an answered outcome that is no JSON-RPC error; undefined otherwise. */
export function resultIn(outcome: Outcome): Readonly<Record<string, unknown>> | undefined {
  if (outcome.kind !== 'answered') return undefined
  const { result } = outcome.result.value as { result?: unknown }
  return typeof result === 'object' && result !== null ? (result as Record<string, unknown>) : undefined
}
